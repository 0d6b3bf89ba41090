// Search, order and dates of the list of runs.
import { clockTime } from "../format";
import { locale, translate, t, type Label } from "../strings/t";
import type { RunRow } from "../types";

export type Order = "newest" | "oldest" | "name" | "result";
export const orders: [Order, Label][] = [["newest", "Newest first"], ["oldest", "Oldest first"], ["name", "By name"], ["result", "By result"]];

export const isActive = (row: RunRow) => row.status === "training" || row.status === "starting" || row.status === "paused";

/** States that the list can be filtered by, with their labels. */
export const states: [string, Label][] = [["", "Any state"], ["active", "Training"], ["finished", "Finished"], ["stopped", "Stopped"], ["failed", "Failed"]];
const stateOf = (row: RunRow) => (isActive(row) ? "active" : row.status === "ended_early" ? "failed" : row.status);

/** All tags of the runs, by name. */
export const tagsOf = (rows: RunRow[]) => [...new Set(rows.flatMap(({ tags }) => tags))].sort((a, b) => a.localeCompare(b));

/** The runs in this state and with this tag; empty ones allow all. */
export const filtered = (rows: RunRow[], state: string, tag: string) =>
  rows.filter((row) => (!state || stateOf(row) === state) && (!tag || row.tags.includes(tag)));

/** The runs in whose name, kind, state, note or tags all words of the query appear. */
export const search = (rows: RunRow[], query: string): RunRow[] => {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row: RunRow) => [row.name, row.what, translate(row.what), row.line, translate(row.line), row.note, ...row.tags.map((tag) => `#${tag}`), row.status.replace("_", " "), row.id].join(" ").toLowerCase();
  return rows.filter((row) => words.every((word) => text(row).includes(word)));
};

const result = (row: RunRow) => Number.parseFloat(row.result?.[0].replaceAll(",", "") ?? "");

/** Running ones stay on top, unless one sorts by name or result. Results of different kinds are
 * kept apart; runs without a result come last. */
export const sorted = (rows: RunRow[], order: Order): RunRow[] => {
  const compare: Record<Order, (a: RunRow, b: RunRow) => number> = {
    newest: (a, b) => Number(isActive(b)) - Number(isActive(a)) || b.started_unix_ms - a.started_unix_ms,
    oldest: (a, b) => a.started_unix_ms - b.started_unix_ms,
    name: (a, b) => a.name.localeCompare(b.name) || b.started_unix_ms - a.started_unix_ms,
    result: (a, b) => (b.result ? 1 : 0) - (a.result ? 1 : 0) || (a.result?.[1] ?? "").localeCompare(b.result?.[1] ?? "") || result(b) - result(a),
  };
  return [...rows].sort(compare[order]);
};

/** The kind of a run: "Image classification". */
const taskOf = (row: RunRow) => row.what.split(",")[0];
/** The evaluated runs with the task of this one, which it can be compared with. */
export const comparable = (rows: RunRow[], own: RunRow) => rows.filter((row) => row.id !== own.id && row.result && taskOf(row) === taskOf(own));

const day = (at: Date) => new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();

/** "today 14:02", "yesterday 9:15", "12 November", "12 November 2025". */
export const dateOf = (unixMs: number, now: Date): string => {
  const at = new Date(unixMs);
  const days = Math.round((day(now) - day(at)) / 86_400_000);
  if (days === 0) return t("today {time}", { time: clockTime(at) });
  if (days === 1) return t("yesterday {time}", { time: clockTime(at) });
  const year = at.getFullYear() === now.getFullYear() ? {} : { year: "numeric" as const };
  return at.toLocaleDateString(locale(), { day: "numeric", month: "long", ...year });
};

/** "Finished after 570 steps, today 14:20"; a running one tells when it started. */
export const lineOf = (row: RunRow, now: Date): string => {
  if (isActive(row)) return t("{line}, started {date}", { line: translate(row.line), date: dateOf(row.started_unix_ms, now) });
  return `${translate(row.line).replace(/\.$/, "")}, ${dateOf(row.unix_ms, now)}`;
};
