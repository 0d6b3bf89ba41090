// Imported first. WebKitGTK may report the language "C", which is not a locale. Number formatting
// then throws while a library loads, and the page stays empty.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}

export {};
