// Translates sentences that Rust has written. A key of de.json is a pattern: "{n}" matches a
// number with its unit, "{text}" a text that is translated itself, "{list}" several of them with
// commas between, and any other name a text that stays as it is. `{n}` and `{n2}` are different
// values.
import type { Translation } from "./german";

const NUMBER = String.raw`[-−]?\d[\d,.:]*(?:e[-+]?\d+)?(?: ?(?:%|h|s|ms|min|kB|MB|GB|TB|bytes?|px)(?![\w/]))?`;
const onlyNumber = new RegExp(`^${NUMBER}$`);

/** "1,215" becomes "1.215", and "6.1 GB" becomes "6,1 GB". */
export const germanNumber = (text: string): string => text.replace(/[.,]/g, (mark) => (mark === "," ? "." : ",")).replace(/bytes?$/, "Byte");

interface Pattern {
  regex: RegExp;
  names: string[];
  english: string;
}

/** Characters that are the same in every sentence that the pattern matches. */
const fixedLength = (text: string) => text.replace(/\{\w+\}/g, "").length;

const pattern = (english: string): Pattern => {
  const names: string[] = [];
  const source = english.split(/(\{\w+\})/).map((part, place) => {
    if (place % 2 === 0) return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    names.push(part.slice(1, -1));
    return /^\{n\d*\}$/.test(part) ? `(${NUMBER})` : "(.+?)";
  });
  return { regex: new RegExp(`^${source.join("")}$`, "su"), names, english };
};

/** Returns a function that translates a sentence; one that matches nothing stays as it is. `keys`
 * are the patterns. */
export const sentences = (words: Translation["words"], form: Translation["form"], keys: string[]) => {
  let patterns: Pattern[] | undefined;
  const known = new Map<string, string>();
  /** The pattern with the most fixed characters decides. */
  const all = () => (patterns ??= keys.toSorted((a, b) => fixedLength(b) - fixedLength(a)).map(pattern));

  /** Translates with a pattern; `undefined` if one of its texts is unknown. */
  const filled = (found: RegExpExecArray, { names, english }: Pattern, inEnglish: boolean): string | undefined => {
    const values: Record<string, string> = {};
    for (const [place, name] of names.entries()) {
      const [text, kind] = [found[place + 1]!, name.replace(/\d+$/, "")];
      const parts = kind === "list" ? text.split(", ") : [text];
      const translated = kind === "n" ? [germanNumber(text)] : kind === "text" || kind === "list" ? parts.map((part) => find(part) ?? (inEnglish ? part : undefined)) : [text];
      if (translated.includes(undefined)) return undefined;
      values[name] = translated.join(", ");
    }
    const forms = words[english]!;
    const german = typeof forms === "string" ? forms : form(forms, Number((values.n ?? "0").replaceAll(".", "")));
    return german.replace(/\{(\w+)\}/g, (_, name: string) => values[name]!);
  };
  const matching = (text: string, inEnglish: boolean): string | undefined => {
    for (const one of all()) {
      const found = one.regex.exec(text);
      const german = found && filled(found, one, inEnglish);
      if (german) return german;
    }
    return undefined;
  };
  /** An error of Rust begins in lower case, and may be shown with a capital. */
  const withCapital = (text: string): string | undefined => {
    const small = text.replace(/^[A-Z]/, (letter) => letter.toLowerCase());
    return small === text ? undefined : find(small)?.replace(/^./u, (letter) => letter.toUpperCase());
  };
  /** Several sentences may follow each other. If one is unknown, all stay English. */
  const inParts = (text: string): string | undefined => {
    const parts = text.split(/(?<=[.!?]) (?=[A-Z])/);
    const translated = parts.length > 1 ? parts.map(find) : [undefined];
    return translated.includes(undefined) ? undefined : translated.join(" ");
  };
  const find = (text: string): string | undefined => {
    const exact = words[text];
    if (typeof exact === "string") return exact;
    return onlyNumber.test(text) ? germanNumber(text) : (matching(text, false) ?? withCapital(text) ?? inParts(text));
  };
  return (text: string): string => {
    let german = known.get(text);
    if (german === undefined) {
      // A run tells its figures in thousands of different sentences.
      if (known.size > 2000) known.clear();
      known.set(text, (german = find(text) ?? matching(text, true) ?? text));
    }
    return german;
  };
};
