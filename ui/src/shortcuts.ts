// Keyboard shortcuts, from the table of actions. The command key is ⌘ on a Mac and Ctrl elsewhere.
import { actions } from "./actions/actionTable";
import { t } from "./strings/t";

/** The id of an action. */
export type KeyAction = string;

const withCommand = new Map(actions.filter(({ key }) => key && key !== " ").map(({ id, key }) => [key!, id]));
// The same keys on other keyboards.
withCommand.set("+", withCommand.get("=")!);

const inField = (target: EventTarget | null) => target instanceof HTMLElement && target.closest("input, select, textarea, button, a, [role=option]") !== null;

export const keyAction = (event: KeyboardEvent, mac: boolean): KeyAction | undefined => {
  if (event.altKey) return undefined;
  // In a text it deletes a part of the text.
  if (event.key === "Backspace" && event.target instanceof HTMLElement && event.target.closest("input, textarea, [contenteditable]")) return undefined;
  // In a text of several lines it sends the text.
  if (event.key === "Enter" && event.target instanceof HTMLElement && event.target.localName === "textarea") return undefined;
  // With Shift, a letter arrives as a capital; "+" is a key of its own on some keyboards.
  const key = event.shiftKey && event.key !== "+" ? `shift+${event.key.toLowerCase()}` : event.key;
  if (mac ? event.metaKey : event.ctrlKey) return withCommand.get(key);
  if (event.metaKey || event.ctrlKey || event.shiftKey) return undefined;
  return event.key === " " && !inField(event.target) ? "pause" : undefined;
};

const names: Record<string, string> = { "=": "+", "-": "−" };
const macNames: Record<string, string> = { Enter: "↩", Backspace: "⌫" };

/** "⌘↩" and "⇧⌘D" on a Mac, "Ctrl+Enter" and "Ctrl+Shift+D" elsewhere. */
export const keyLabel = (key: string, mac: boolean): string => {
  if (key === " ") return t("Space");
  if (key.startsWith("shift+")) return keyLabel(key.slice(6), mac).replace(/^/, mac ? "⇧" : "").replace("Ctrl+", "Ctrl+Shift+");
  const shown = names[key] ?? (key.length === 1 ? key.toUpperCase() : key);
  return mac ? `⌘${macNames[shown] ?? shown}` : `Ctrl+${shown}`;
};
