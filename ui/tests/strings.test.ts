// The strings of the two languages: both have all of them, and nothing else in the window is text.
import { parse } from "svelte/compiler";
import { afterEach, describe, expect, test } from "vitest";
import sections from "../src/strings/de.json";
import actions from "../src/actions/actions.json";
import settings from "../src/generated/settings.json";
import { title } from "../src/plan/settingTitle";
import { count, plural, samples, size } from "../src/format";
import { isGerman, translate, setLanguage, t } from "../src/strings/t";
import examples from "./composedSentences.json";
import pairs from "./sentences.json";

type Entry = string | { one: string; other: string };
const strings: [string, string, Entry][] = Object.entries(sections).flatMap(([section, all]) => Object.entries(all as Record<string, Entry>).map(([english, german]): [string, string, Entry] => [section, english, german]));
const formsOf = (german: Entry) => (typeof german === "string" ? [german] : [german.one, german.other]);
const names = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!);

const page: [string, string][] = Object.entries(import.meta.glob<string>("../src/**/*.{svelte,ts}", { query: "?raw", import: "default", eager: true })).filter(([path]) => !/\/(generated|strings|replay)\//.test(path));

/** The other sections are texts of the page. */
const isOfRust = (section: string) => section.startsWith("rust: ");

test("every text has German with the same values", () => {
  expect(strings.length).toBeGreaterThan(1000);
  for (const [, english, german] of strings) {
    for (const form of formsOf(german)) {
      expect(form.trim(), english).not.toBe("");
      // "Every minute" needs no number, and a form for one may name one sample.
      const free = typeof german === "string" ? [] : ["n", "sample", "samples"];
      const different = [...names(form).filter((name) => !names(english).includes(name)), ...names(english).filter((name) => !names(form).includes(name))];
      expect(different.filter((name) => !free.includes(name)), english).toEqual([]);
    }
  }
});

test("a text is written once", () => {
  const english = strings.map(([, key]) => key);
  expect(english.filter((key, place) => english.indexOf(key) !== place)).toEqual([]);
});

test("German has its own quotation marks and no form of address", () => {
  for (const [, english, german] of strings) {
    for (const form of formsOf(german)) {
      expect(form, english).not.toMatch(/["”]|\b(Sie|Ihr|Ihre|Ihren|Ihnen)\b(?! [a-z])/);
      expect((form.match(/„/g) ?? []).length, english).toBe((form.match(/“/g) ?? []).length);
      expect(form, english).not.toMatch(/\S…/);
    }
  }
});

test("every text of the page is used", () => {
  const nouns = ["image", "text", "document", "window", "sample"];
  const composed = new Set(nouns.flatMap((noun) => [noun, `${noun}s`, `{n} ${noun}s`]).concat("normal", "warning", "critical"));
  const source = page.map(([, source]) => source).join("\n");
  const unused = strings.filter(([section, english]) => !isOfRust(section) && !composed.has(english) && !source.includes(JSON.stringify(english)));
  expect(unused.map(([, english]) => english)).toEqual([]);
});

test("every action and setting has German", async () => {
  const known = new Set(strings.map(([, english]) => english));
  const labels = actions.flatMap(({ label, elsewhere, menu }: { label: string; elsewhere?: string; menu?: string }) => [label, elsewhere, menu]);
  // A default that is a word of the config file or a number stays as it is.
  const words = settings.flatMap(({ key, group, help, default: standard }) => [title(key), group, help, /^[a-z0-9.]+$/.test(standard) ? undefined : standard]);
  expect([...labels, ...words].filter((text) => text !== undefined && !known.has(text))).toEqual([]);
});

/** Rust without its tests and comments; literals that continue on the next line are joined. */
const rust = () => {
  const all = import.meta.glob<string>(["../../src-tauri/**/*.rs", "../../crates/*/src/**/*.rs", "!**/{tests,*_tests}.rs", "!**/tests/**"], { query: "?raw", import: "default", eager: true });
  const sources = Object.values(all).map((source) => source.split("#[cfg(test)]\nmod tests")[0]!.replace(/^\s*\/\/.*$/gm, ""));
  expect(sources.length).toBeGreaterThan(300);
  return sources.join("\n").replace(/\\\n\s*/g, "").replaceAll('\\"', '"').toLowerCase();
};

/** Where Rust may join pieces of a sentence; each piece must be there. */
const JOINTS = /\{\w+\}|\b(?:image|text|document|sample)s?\b|, |; |: |\. |\.$| in the terminal| at step|paused in|on this Mac|left out| reduced | increased | from |per dropped| accuracy$| error$| epochs(?= in all)|(?<=Memory) (?:normal|warning|critical)$|\bconversations?\b|\bbytes?(?= could)|\bclass(?:es)?(?= \()|(?<=(?:read this|of the|This|Copy the) )(?:file|folder)\b| (?:is|are|has|have) (?=not used|not UTF|larger|in two sets|too few|left out|a different)| (?:was|were) (?=replaced)| (?:it|them) (?=as|in parts)| (?=not ASCII|with a byte-order|with the system|with a short|as missing)/;

test("every sentence of Rust is still written there", () => {
  const source = rust();
  const toolkit = ["Edit", "Window", "Help", "About", "About Ebb", "Services", "Hide", "Hide Ebb", "Hide Others", "Show All", "Quit", "Undo", "Redo", "Cut", "Copy", "Paste", "Select All", "Minimize", "Zoom", "Close", "Close Window", "Toggle Full Screen"];
  const labels = new Set(actions.flatMap(({ label, elsewhere, menu }: { label: string; elsewhere?: string; menu?: string }) => [label, elsewhere, menu]));
  const gone = strings.filter(([section, english]) => {
    if (!isOfRust(section) || section === "rust: settings" || toolkit.includes(english) || labels.has(english)) return false;
    const pieces = english.split(JOINTS).map((piece) => piece?.trim() ?? "").filter((piece) => /[a-z]{3}/.test(piece));
    return !pieces.every((piece) => source.includes(piece.toLowerCase()));
  });
  expect(gone.map(([, english]) => english)).toEqual([]);
});

/** What only developers, the terminal and readers of exported folders see. */
const NOT_SHOWN = /src-tauri\/(cli|build)|crates\/(tape|format)\/|model_card|check_typescript_bindings|docs\/guide|^The memory script|^\{\}, line \{line\}/;

/** Errors of the crates, and whole sentences. */
const shownByRust = () => {
  const all = import.meta.glob<string>(["../../src-tauri/**/*.rs", "../../crates/*/src/**/*.rs", "!**/{tests,*_tests}.rs", "!**/tests/**"], { query: "?raw", import: "default", eager: true });
  const found = Object.entries(all).filter(([path]) => !NOT_SHOWN.test(path)).flatMap(([, source]) => {
    const code = source.split("#[cfg(test)]")[0]!.replace(/^\s*\/\/.*$/gm, "").replace(/\\\n\s*/g, "");
    const errors = [...code.matchAll(/#\[error\(\s*"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => text!);
    const texts = [...code.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => text!);
    return [...errors, ...texts.filter((text) => /^[A-Z{].*[a-z]+ .*\.$/s.test(text) && text.split(" ").length > 3)];
  });
  return [...new Set(found.map((text) => text.replaceAll('\\"', '"').replaceAll("{{", "{")))].filter((text) => !NOT_SHOWN.test(text) && text.replace(/\{[^}]*\}/g, "").match(/[a-z]{2}/));
};

/** What Rust may write for a literal: each value is a number, a name, or a noun. */
const sentencesOf = (literal: string) => {
  const values = ["7", "Xyz", "image"];
  const places = Math.min((literal.match(/\{[^}]*\}/g) ?? []).length, 6);
  return Array.from({ length: values.length ** places }, (_, choice) => {
    let place = 0;
    return literal.replace(/\{[^}]*\}/g, () => values[Math.floor(choice / values.length ** Math.min(place++, 5)) % values.length]!);
  });
};

/** What a reader sees of a component, but no translation: texts, and attributes with words. */
const literals = (component: string): string[] => {
  const found: string[] = [];
  const visible = ["aria-label", "aria-valuetext", "title", "placeholder", "alt", "label", "hint", "subtitle", "action"];
  const isWords = (text: string) => /\p{L}{2,}/u.test(text.replace(/\b(GB|px|Ebb|kB|F1|CSV)\b/g, ""));
  const visit = (node: unknown): void => {
    if (Array.isArray(node)) return node.forEach(visit);
    if (typeof node !== "object" || node === null) return;
    const { type, name, value, data } = node as { type?: string; name?: string; value?: unknown; data?: string };
    if (type === "Text" && data && isWords(data)) found.push(data.trim());
    if (type === "StyleDirective") return;
    if (type === "Attribute") {
      const parts = Array.isArray(value) ? value : [value];
      const texts = parts.filter((part): part is { type: string; data: string } => typeof part === "object" && part !== null && (part as { type: string }).type === "Text");
      if (visible.includes(name!)) found.push(...texts.map(({ data }) => data).filter(isWords));
      return parts.forEach((part) => (part as { type?: string })?.type !== "Text" && visit(part));
    }
    // Strings of an expression that begin like a sentence.
    if (type === "Literal" && typeof value === "string" && /^[A-Z][a-z]+ [a-z]/.test(value)) found.push(value);
    if (type === "CallExpression") {
      const { callee, arguments: all } = node as { callee: { name?: string }; arguments: unknown[] };
      if (["t", "plural", "form"].includes(callee.name ?? "")) return visit(all.filter((one) => (one as { type: string }).type !== "Literal"));
    }
    for (const [key, child] of Object.entries(node)) if (!["css", "metadata", "comments", "leadingComments"].includes(key)) visit(child);
  };
  const { fragment, instance } = parse(component, { modern: true });
  visit(fragment);
  visit(instance);
  return found;
};

test("components have no text of their own", () => {
  const components = page.filter(([path]) => path.endsWith(".svelte"));
  expect(components.length).toBeGreaterThan(50);
  expect(components.flatMap(([path, source]) => literals(source).map((text) => `${path}: ${text}`))).toEqual([]);
});

test("a sentence names what to choose in the window, not a flag of the terminal", () => {
  const shown = {
    "55 of 200 texts are longer than 32 tokens and are cut; a larger maximum length (--tokens in the terminal) keeps more of each text": "55 of 200 texts are longer than 32 tokens and are cut; a larger maximum length (Length, on the plan) keeps more of each text",
    "Rename two columns to text and label, or choose the columns (--text-column and --label-column in the terminal).": "Rename two columns to text and label, or choose the columns under “Look at the data”.",
    "Choose this file there as the model to start from (in the terminal: ebb train DATA --from FILE).": "Choose this file there as the model to start from.",
    "Paused in the terminal at step 3": "Paused in the terminal at step 3",
  };
  for (const [sentence, text] of Object.entries(shown)) expect(translate(sentence)).toBe(text);
});

describe("German", () => {
  afterEach(() => setLanguage("en"));

  test("is spoken once it is chosen", async () => {
    globalThis.document ??= { documentElement: {} } as Document;
    expect([isGerman(), t("Done"), translate("by you")]).toEqual([false, "Done", "by you"]);
    await setLanguage("de");
    expect([isGerman(), t("Done"), document.documentElement.lang]).toEqual([true, "Fertig", "de"]);
    expect([t("{time} left", { time: "9:04" }), translate("by you")]).toEqual(["noch 9:04", "auf Wunsch"]);
  });

  test("every error and sentence of Rust has German", async () => {
    await setLanguage("de");
    const hasGerman = (text: string) => [text, text.replace(/^[a-z]/, (letter) => letter.toUpperCase())].some((one) => translate(one) !== one);
    const literals = shownByRust();
    expect(literals.length).toBeGreaterThan(300);
    const composed = examples as Record<string, string[]>;
    const missing = literals.filter((literal) => !sentencesOf(literal).some(hasGerman) && !composed[literal]?.every(hasGerman));
    expect(missing).toEqual([]);
    expect(Object.keys(composed).filter((literal) => !literals.includes(literal)), "examples of sentences that Rust no longer has").toEqual([]);
  });

  test("has its own numbers and forms", async () => {
    await setLanguage("de");
    expect([size(6.1 * 2 ** 30), size(812), size(1)]).toEqual(["6,1 GB", "812 Byte", "1 Byte"]);
    expect([plural(1, "{n} note", "{n} notes"), plural(20, "{n} note", "{n} notes")]).toEqual(["1 Hinweis", "20 Hinweise"]);
    expect([samples(1, "image"), samples(1215, "image")]).toEqual(["1 Bild", `${count(1215)} Bilder`]);
  });

  test.each(pairs as [string, string][])("%s", async (english, german) => {
    await setLanguage("de");
    expect(translate(english)).toBe(german);
  });
});
