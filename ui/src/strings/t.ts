// The language of the window. English stands where it is used and is the key of the German in
// de.json, which is loaded only if German is chosen. Rust reads the same file for menus and
// notifications.
import type { Translation } from "./german";
import type { Language } from "../types";
import type strings from "./de.json";

type Sections = typeof strings;
/** A text of the window. One without German is a type error. */
export type Text = { [S in keyof Sections]: keyof Sections[S] }[keyof Sections];
/** The names of the values in a text: "n" and "place" for "{n} in {place}". */
type Names<T> = T extends `${string}{${infer Name}}${infer Rest}` ? Name | Names<Rest> : never;
export type Values<T> = Record<Names<T>, string | number>;
/** A text without values, such as the label of a column in a table. */
export type Label = { [T in Text]: [Names<T>] extends [never] ? T : never }[Text];

let german: Translation | null = null;

/** The locale of dates and numbers. English dates are British: "12 November". */
export const locale = () => (german ? "de-DE" : "en-GB");
export const isGerman = () => german !== null;

/** Chooses the language. Nothing may be shown before it is ready. */
export const setLanguage = async (language: Language) => {
  german = language === "de" ? (await import("./german")).translation : null;
  document.documentElement.lang = language;
};

const fill = (text: string, values?: Record<string, string | number>) => (values ? text.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name])) : text);

/** A text in the chosen language. */
export const t = <T extends Text>(text: T, ...values: [Names<T>] extends [never] ? [] : [Values<T>]): string => fill((german?.words[text] as string) ?? text, values[0]);

/** "1 class", "20 classes": the form for a number. `shown` is the number as it is written. */
export const form = (value: number, shown: string, one: string, many: Text, values?: Record<string, string | number>): string => {
  const forms = german?.words[many];
  const text = typeof forms === "object" ? german!.form(forms, value) : (forms ?? (value === 1 ? one : many));
  return fill(text, { n: shown, ...values });
};

/** What a sentence of Rust says in parentheses to readers of the terminal, and what to choose in the
 * window instead. German sentences say it themselves. */
const inWindow = (sentence: string): string =>
  sentence
    .replace(/ \((?:in the terminal: [^()]*)\)/g, "")
    .replace("(--tokens in the terminal)", "(Length, on the plan)")
    .replace(/\(--[a-z-]+(?: and --[a-z-]+)? in the terminal\)/g, "under “Look at the data”");

/** A sentence that Rust has written, in the chosen language. An unknown one stays English. */
export const translate = (sentence: string): string => {
  const translated = german?.sentence(sentence) ?? sentence;
  return translated.includes("in the terminal") ? inWindow(translated) : translated;
};
/** A decimal number, such as "3.2", as it is shown. */
export const decimal = (text: string): string => (german ? text.replace(".", ",") : text);
/** A decimal number as it was typed. */
export const typedDecimal = (text: string): string => (german ? text.replace(",", ".") : text);
