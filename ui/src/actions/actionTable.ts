// The table of actions. Menu bar, context menu, keyboard and palette are made from it; Rust reads
// the same file.
import { translate } from "../strings/t";
import table from "./actions.json";

export interface Action {
  id: string;
  label: string;
  /** The label where there is no Finder. */
  elsewhere?: string;
  /** The menu of the menu bar; none if the system has an item of its own. */
  menu?: string;
  /** Pressed together with the command key, and with Shift if it begins with "shift+"; Space is
   * pressed alone. Space and Backspace are left to the page, because a menu bar would take them away
   * from text fields. */
  key?: string;
  /** The button that does the same. The action can be performed if the button can be pressed. */
  button?: string;
  /** In the context menu of this: a run, a chart, a class or a sample. */
  on?: string;
}

export const actions: readonly Action[] = table;

export const labelOf = (action: Action, mac: boolean) => translate(mac ? action.label : (action.elsewhere ?? action.label));

/** The actions whose label has all words of the query, those that begin with it first. */
export const search = (list: readonly Action[], query: string, mac: boolean): Action[] => {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const label = (action: Action) => labelOf(action, mac).toLowerCase();
  const found = list.filter((action) => words.every((word) => label(action).includes(word)));
  const begins = (action: Action) => (words[0] && label(action).startsWith(words[0]) ? 0 : 1);
  return [...found].sort((a, b) => begins(a) - begins(b));
};
