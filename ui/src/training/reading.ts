// The values under the cursor: the last known at that time, and the reason for a change nearby.
import type { Scene } from "../chart/scene";
import { SERIES } from "../chart/series";
import { missing } from "../format";
import type { Level } from "../types";

export interface Reading {
  level: Level;
  /** Label and value. */
  rows: [string, string][];
  /** The change nearby; empty if there is none. */
  reason: string;
}

/** Index of the last time at or before `ms`; -1 before the first. */
export const indexAt = (times: ArrayLike<number>, ms: number): number => {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! <= ms) low = middle + 1;
    else high = middle;
  }
  return low - 1;
};

/** Sums of the series by the rows of the cursor's box that they belong to. */
const rowsAt = (scene: Scene, ms: number): Reading["rows"] => {
  const sums = new Map<string, { total: number; text: string }>();
  for (const row of SERIES) {
    const drawn = scene.series.get(row);
    const value = drawn?.values[indexAt(drawn.at, ms)] ?? Number.NaN;
    for (const label of row.cursor ?? []) {
      const total = (sums.get(label)?.total ?? 0) + value;
      sums.set(label, { total, text: Number.isFinite(total) ? row.format(total) + (row.suffix ?? "") : missing });
    }
  }
  return [...sums].map(([label, { text }]) => [label, text]);
};

/** `nearMs` is how far a change may be from the cursor. */
export const readingAt = (scene: Scene, ms: number, nearMs: number): Reading => {
  const mark = scene.marks.findLast((one) => Math.abs(one.at_ms - ms) <= nearMs);
  const span = scene.spans.find((one) => one.from_ms <= ms && ms <= one.to_ms);
  return { level: span?.level ?? "normal", rows: rowsAt(scene, ms), reason: mark ? `${mark.short}: ${mark.reason}` : "" };
};
