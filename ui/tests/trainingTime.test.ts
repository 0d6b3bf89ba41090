// The training time while the slider moves.
import { expect, test } from "vitest";
import { epochSecondsWith, epochTime } from "../src/plan/trainingTime";

test("a smaller micro-batch takes longer, a larger one less", () => {
  // 40 s for the samples, and 20 s for as many micro-batches as samples.
  const time = epochTime(16, 45, 60);
  expect([1, 2, 4, 20, 1000].map((size) => Math.round(epochSecondsWith(time, size)))).toEqual([60, 50, 45, 41, 40]);
  const measuredAtTwo = epochTime(2, 50, 60);
  expect(epochSecondsWith(measuredAtTwo, 2)).toBe(50);
  expect(epochSecondsWith(measuredAtTwo, 4)).toBe(45);
});

test("a time that was measured once is that of every size", () => {
  for (const time of [epochTime(16, 48, null), epochTime(1, 48, 48), epochTime(16, 48, 48), epochTime(16, 48, 45)]) {
    expect([1, 8, 64].map((size) => epochSecondsWith(time, size))).toEqual([48, 48, 48]);
  }
});
