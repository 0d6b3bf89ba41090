// German. Loaded only if it is chosen.
import sections from "./de.json";
import { sentences } from "./sentences";

/** A text that depends on a number. */
export type Forms = Partial<Record<Intl.LDMLPluralRule, string>>;
export interface Translation {
  /** German by English. */
  words: Record<string, string | Forms>;
  form(forms: Forms, value: number): string;
  /** A sentence that Rust has written. */
  sentence(text: string): string;
}

const words: Translation["words"] = Object.assign({}, ...Object.values(sections));
const rules = new Intl.PluralRules("de");
const form = (forms: Forms, value: number) => forms[rules.select(value)] ?? forms.other!;

/** Only sentences of Rust have patterns. */
const patterns = Object.entries(sections).flatMap(([section, texts]) => (section.startsWith("rust: ") ? Object.keys(texts).filter((text) => text.includes("{")) : []));

export const translation: Translation = { words, form, sentence: sentences(words, form, patterns) };
