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
  const i = indexAt(scene.memory[0]!, ms);
  const [used, others, line] = [scene.memory[1]![i], scene.memory[3]![i], scene.memory.at(-1)![i]];
  const mark = scene.marks.findLast((one) => Math.abs(one.at_ms - ms) <= nearMs);
  const span = scene.spans.find((one) => one.from_ms <= ms && ms <= one.to_ms);
  return {
    level: span?.level ?? "normal",
    rows: [
      ["Budget line", gb(line)],
      ["In use", gb(used)],
      ["Ebb", gb(used === undefined || others === undefined ? undefined : used - others)],
      ["Micro-batch", count(scene.micro[1]![indexAt(scene.micro[0]!, ms)])],
      ["Loss, smoothed", loss(scene.loss[2]![indexAt(scene.loss[0]!, ms)])],
    ],
    reason: mark ? `${mark.short}: ${mark.reason}` : "",
  };
};
