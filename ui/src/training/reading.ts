// What stood under the cursor: the values last known at that instant, and why the micro-batch changed nearby.
import type { Scene } from "../chart/scene";
import { count, loss, missing } from "../format";
import type { Level } from "../types";

export interface Reading {
  level: Level;
  rows: [string, string][];
  reason: string;
}

/** Index of the last time at or before `ms`; -1 before the first. */
export const indexAt = (times: ArrayLike<number | null>, ms: number): number => {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! <= ms) low = middle + 1;
    else high = middle;
  }
  return low - 1;
};

const gb = (value: number | undefined) => (value === undefined ? missing : `${value.toFixed(1)} GB`);

export const readingAt = (scene: Scene, ms: number, nearMs: number): Reading => {
  const [at, total, , others, , line] = scene.memory as [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array, Float64Array];
  const i = indexAt(at, ms);
  const used = total[i];
  const mark = scene.marks.findLast((one) => Math.abs(one.at_ms - ms) <= nearMs);
  const span = scene.spans.find((one) => one.from_ms <= ms && ms <= one.to_ms);
  return {
    level: span?.level ?? "normal",
    rows: [
      ["Budget line", gb(line[i])],
      ["In use", gb(used)],
      ["Ebb", gb(used === undefined ? undefined : used - others[i]!)],
      ["Micro-batch", count(scene.micro[1]![indexAt(scene.micro[0]!, ms)])],
      ["Loss, smoothed", loss(scene.loss[2]![indexAt(scene.loss[0]!, ms)])],
    ],
    reason: mark ? `${mark.short}: ${mark.reason}` : "",
  };
};
