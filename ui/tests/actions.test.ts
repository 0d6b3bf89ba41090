// The table of actions, its shortcuts, and the search of the palette.
import { expect, test, vi } from "vitest";
import { actions, labelOf, search } from "../src/actions/actionTable";
import { keyAction, keyLabel } from "../src/shortcuts";

vi.stubGlobal("HTMLElement", class {});

const press = (key: string, held: Partial<KeyboardEvent> = {}) => ({ key, altKey: false, shiftKey: false, ctrlKey: false, metaKey: false, target: null, ...held }) as KeyboardEvent;

test("every shortcut performs its action, with the command key of the system", () => {
  for (const { id, key } of actions) {
    if (!key) continue;
    const alone = key === " ";
    const shiftKey = key.startsWith("shift+");
    const pressed = shiftKey ? key.slice(6).toUpperCase() : key;
    expect(keyAction(press(pressed, { ctrlKey: !alone, shiftKey }), false), id).toBe(id);
    expect(keyAction(press(pressed, { metaKey: !alone, shiftKey }), true), id).toBe(id);
    expect(keyAction(press(pressed, { altKey: true, ctrlKey: true, shiftKey }), false), id).toBeUndefined();
  }
  expect(keyAction(press("+", { ctrlKey: true, shiftKey: true }), false)).toBe("larger");
  expect(keyAction(press("o"), false)).toBeUndefined();
  expect(keyAction(press(" ", { shiftKey: true }), false)).toBeUndefined();
  expect(keyAction(press("Enter", { shiftKey: true, ctrlKey: true }), false)).toBeUndefined();
});

test("a shortcut that deletes text does so in a field", () => {
  class Field extends HTMLElement {
    closest = (selector: string) => (selector.includes("textarea") ? this : null);
  }
  const target = new Field();
  expect(keyAction(press("Backspace", { metaKey: true, target }), true)).toBeUndefined();
  expect(keyAction(press("Backspace", { metaKey: true }), true)).toBe("trash-run");
  expect(keyAction(press("Backspace"), true)).toBeUndefined();
});

test("ids and shortcuts are unique", () => {
  const keys = actions.flatMap(({ key }) => key ?? []);
  expect(new Set(keys).size).toBe(keys.length);
  expect(new Set(actions.map(({ id }) => id)).size).toBe(actions.length);
});

test("shortcuts are written as the system writes them", () => {
  expect([keyLabel("Enter", true), keyLabel("o", true), keyLabel("=", true)]).toEqual(["⌘↩", "⌘O", "⌘+"]);
  expect([keyLabel("shift+d", true), keyLabel("shift+d", false)]).toEqual(["⇧⌘D", "Ctrl+Shift+D"]);
  expect([keyLabel("Backspace", true), keyLabel("Backspace", false)]).toEqual(["⌘⌫", "Ctrl+Backspace"]);
  expect([keyLabel("Enter", false), keyLabel("s", false), keyLabel(" ", false)]).toEqual(["Ctrl+Enter", "Ctrl+S", "Space"]);
});

test("the palette finds by words, those that begin with it first", () => {
  const offered = actions.filter(({ on }) => !on || on === "run");
  const labels = (query: string) => search(offered, query, false).map((action) => labelOf(action, false));
  expect(labels("text lar")).toEqual(["Larger text"]);
  expect(labels("t")[0]).toBe("Training");
  expect(labels("file manager")).toEqual(["Show in file manager"]);
  expect(labels("Finder")).toEqual([]);
  expect(labels("nothing like this")).toEqual([]);
});
