// The time ranges that were chosen, by run, remembered over reloads and restarts for the runs whose
// range was chosen last.
import type { Span } from "./timeRange";

const KEY = "ebb.ranges";
const MOST = 50;

/** Storage as `localStorage`; it may be switched off. */
type Store = Pick<Storage, "getItem" | "setItem">;

/** Runs and ranges, the newest last. JSON has no infinity: `null` is the whole run. */
const read = (store?: Store): [string, Span][] => {
  try {
    const entries = JSON.parse((store ?? localStorage).getItem(KEY) ?? "[]") as [string, Span][];
    return entries.map(([run, span]) => [run, span.follow ? { follow: true, lengthMs: span.lengthMs ?? Infinity } : span]);
  } catch {
    return [];
  }
};

export const savedSpan = (run: string, store?: Store) => read(store).find(([id]) => id === run)?.[1];

export const saveSpan = (run: string, span: Span, store?: Store) => {
  const others = read(store).filter(([id]) => id !== run);
  try {
    (store ?? localStorage).setItem(KEY, JSON.stringify([...others, [run, span]].slice(-MOST)));
  } catch {
    // then it lasts as long as the page is shown
  }
};
