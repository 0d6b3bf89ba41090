// The values under the cursor: the last known at that time, and the reason for a change nearby.
import type { Scene } from "../chart/scene";
import { labelFor, SERIES } from "../chart/series";
import { missing } from "../format";
import { decimal, translate, t, type Label } from "../strings/t";
import { indexAt, nearestMark } from "./nearest";
import type { Level } from "../types";

export interface Reading {
  level: Level;
  /** Label and value. */
  rows: [string, string][];
  /** The change nearby; empty if there is none. */
  reason: string;
}

/** Sums of the series by the rows of the cursor's box that they belong to. */
const rowsAt = (scene: Scene, ms: number): Reading["rows"] => {
  const sums = new Map<Label, { total: number; text: string }>();
  const seen = new Set<string | undefined>();
  for (const row of SERIES) {
    const drawn = scene.series.get(row);
    // Swap may be drawn in two panels.
    if (!drawn || seen.has(row.array)) continue;
    seen.add(row.array);
    const value = drawn.values[indexAt(drawn.at, ms)] ?? Number.NaN;
    for (const label of row.cursor ?? []) {
      if (label === "In use" && scene.options.memory === "ebb") continue;
      const total = (sums.get(label)?.total ?? 0) + value;
      sums.set(label, { total, text: Number.isFinite(total) ? row.format(total, scene.header) + (row.suffix ?? "") : missing });
    }
  }
  return [...sums].map(([label, { text }]) => [labelFor(label, scene.header), text]);
};

/** A change of other apps' memory up to so long ago holds the budget line back, in milliseconds. */
const HELD_BACK_MS = 60_000;

const drawnAs = (scene: Scene, name: string) => [...scene.series].find(([row]) => row.name === name)?.[1];

/** The largest change of other apps' memory in the last minute: "2.6" GB in 3 s; `null` if it is not
 * known. */
const changeOfOthers = (scene: Scene, ms: number) => {
  const others = drawnAs(scene, "Other apps");
  if (!others) return null;
  let [low, high] = [{ value: Infinity, at: 0 }, { value: -Infinity, at: 0 }];
  for (let i = indexAt(others.at, ms); i >= 0 && others.at[i]! >= ms - HELD_BACK_MS; i--) {
    const [value, at] = [others.values[i] ?? Number.NaN, others.at[i]!];
    if (value < low.value) low = { value, at };
    if (value > high.value) high = { value, at };
  }
  const changed = high.value - low.value;
  return changed >= 0.05 ? { size: decimal(changed.toFixed(1)), seconds: Math.max(1, Math.round(Math.abs(high.at - low.at) / 1000)) } : null;
};

/** Why the budget is below what the user allows, if it is clearly. */
const heldBack = (scene: Scene, ms: number) => {
  const value = (name: string) => {
    const drawn = drawnAs(scene, name);
    return drawn?.values[indexAt(drawn.at, ms)] ?? Number.NaN;
  };
  const less = value("Your limit") - value("Budget line");
  if (!(less >= 0.3)) return "";
  const [gap, change] = [decimal(less.toFixed(1)), changeOfOthers(scene, ms)];
  if (change) return t("Ebb keeps the budget line {gap} GB below your limit, because other apps' memory changed by {size} GB in {seconds} s.", { gap, ...change });
  return t("Ebb keeps the budget line {gap} GB below your limit, because other apps' memory changed.", { gap });
};

/** `nearMs` is how far a change may be from the cursor. */
export const readingAt = (scene: Scene, ms: number, nearMs: number): Reading => {
  const mark = nearestMark(scene.marks, ms, nearMs);
  const span = scene.spans.find((one) => one.from_ms <= ms && ms <= one.to_ms);
  const reason = mark ? `${translate(mark.short)}: ${translate(mark.reason)}` : heldBack(scene, ms);
  return { level: span?.level ?? "normal", rows: rowsAt(scene, ms), reason };
};
