// Imported first. WebKitGTK may call its language "C", which is no locale: number formatting then throws while a
// library loads, and the page stays empty without a word.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}

export {};
