// Imported first. WebKitGTK may report the language "C", which is not a locale. Number formatting
// then throws while a library loads, and the page stays empty. Only the name is checked: a number
// format would load the data of a locale, which delays the first paint.
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}

export {};
