// Keyboard shortcuts by action. The command key is ⌘ on a Mac and Ctrl elsewhere.
export type KeyAction = "choose" | "go" | "stop" | "checkpoint" | "runs" | "plan" | "training" | "results" | "export" | "pause";

const withCommand: Record<string, KeyAction> = {
  o: "choose", Enter: "go", ".": "stop", s: "checkpoint", "0": "runs", "1": "plan", "2": "training", "3": "results", e: "export",
};

const inField = (target: EventTarget | null) => target instanceof HTMLElement && target.closest("input, select, textarea, button, a") !== null;

export const keyAction = (event: KeyboardEvent, mac: boolean): KeyAction | undefined => {
  if (event.altKey || event.shiftKey) return undefined;
  if (mac ? event.metaKey : event.ctrlKey) return withCommand[event.key];
  if (event.metaKey || event.ctrlKey) return undefined;
  return event.key === " " && !inField(event.target) ? "pause" : undefined;
};

/** "⌘↩" on a Mac, "Ctrl+Enter" elsewhere. */
export const keyLabel = (key: string, mac: boolean) => (mac ? `⌘${key === "Enter" ? "↩" : key}` : `Ctrl+${key}`);
