// Finds what is next to a time: the last value before it, and a change nearby.
import type { Mark } from "../types";

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
