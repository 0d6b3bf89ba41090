// The values under the cursor: the last known at that time, and the reason for a change nearby.
import type { Scene } from "../chart/scene";
import { SERIES } from "../chart/series";
import { missing } from "../format";
import type { Level, Mark } from "../types";

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

/** The change that is nearest to `ms`, at most `nearMs` away. */
export const nearestMark = (marks: Mark[], ms: number, nearMs: number): Mark | undefined => {
  const distance = (mark: Mark) => Math.abs(mark.at_ms - ms);
  let nearest: Mark | undefined;
  for (const mark of marks) if (distance(mark) <= nearMs && (!nearest || distance(mark) <= distance(nearest))) nearest = mark;
  return nearest;
};

/** Sums of the series by the rows of the cursor's box that they belong to. */
const rowsAt = (scene: Scene, ms: number): Reading["rows"] => {
  const sums = new Map<string, { total: number; text: string }>();
  for (const row of SERIES) {
    const drawn = scene.series.get(row);
    if (!drawn || !scene.panels.some(({ id }) => id === row.panel)) continue;
    const value = drawn.values[indexAt(drawn.at, ms)] ?? Number.NaN;
    for (const label of row.cursor ?? []) {
      if (label === "In use" && scene.options.memory === "ebb") continue;
      const total = (sums.get(label)?.total ?? 0) + value;
      sums.set(label, { total, text: Number.isFinite(total) ? row.format(total, scene.header) + (row.suffix ?? "") : missing });
    }
  }
  return [...sums].map(([label, { text }]) => [label === "Metric" ? (scene.header.metric_name ?? label) : label, text]);
};

/** Why the budget is below what the user allows, if it is clearly. */
const heldBack = (scene: Scene, ms: number) => {
  const value = (name: string) => {
    const drawn = [...scene.series].find(([row]) => row.name === name)?.[1];
    return drawn?.values[indexAt(drawn.at, ms)] ?? Number.NaN;
  };
  const less = value("Your limit") - value("Budget line");
  return less >= 0.3 ? `The budget line is ${less.toFixed(1)} GB below your limit: held back because other apps' memory changes.` : "";
};

/** `nearMs` is how far a change may be from the cursor. */
export const readingAt = (scene: Scene, ms: number, nearMs: number): Reading => {
  const mark = nearestMark(scene.marks, ms, nearMs);
  const span = scene.spans.find((one) => one.from_ms <= ms && ms <= one.to_ms);
  const reason = mark ? `${mark.short}: ${mark.reason}` : heldBack(scene, ms);
  return { level: span?.level ?? "normal", rows: rowsAt(scene, ms), reason };
};
