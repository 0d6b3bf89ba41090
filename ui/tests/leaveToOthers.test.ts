// The memory left to other apps, and the ticks of its slider.
import { expect, test } from "vitest";
import { leftBytes, fractionOf, ticks } from "../src/plan/leaveToOthers";
import type { PlanView } from "../src/types";

const GB = 2 ** 30;
const plan = { leave_least_bytes: 1.5 * GB } as PlanView;

test("at least the machine's minimum and at most half is left", () => {
  expect(leftBytes(plan, 24 * GB, 0.9)).toBeCloseTo(2.4 * GB);
  expect(leftBytes(plan, 24 * GB, 0.95)).toBeCloseTo(1.5 * GB);
  expect(fractionOf(plan, 24 * GB, 2.4 * GB)).toBeCloseTo(0.9);
  expect(fractionOf(plan, 24 * GB, 20 * GB)).toBe(0.5);
  expect(fractionOf(plan, 48 * GB, 0)).toBe(0.95);
});

test("ticks are inside the slider and do not overlap", () => {
  const peaks: [number, number][] = [[1, 10], [2, 20], [4, 40], [8, 80], [16, 160]];
  expect(ticks(peaks, (peak) => peak, 15, 100).map((tick) => tick.size)).toEqual([2, 4, 8]);
  expect(ticks(peaks, (peak) => peak / 2, 0, 100).map((tick) => tick.size)).toEqual([4, 8, 16]);
});
