// The charts' arithmetic: round axes, names that clear one another, the stretch of time shown.
import { expect, test } from "vitest";
import { keepNewest, pushApart } from "../src/chart/apart";
import { layout } from "../src/chart/layout";
import { shapeOf } from "../src/chart/marks";
import { pan, stretch, whole, zoom } from "../src/chart/span";
import { lossScale, memoryScale, microScale, timeTicks } from "../src/chart/ticks";

test.each([[24, [0, 8, 16, 24]], [20, [0, 8, 16]], [16, [0, 4, 8, 12, 16]], [7.6, [0, 2, 4, 6]], [128, [0, 32, 64, 96, 128]]])(
  "memory of %s GB has ticks %s", (top, ticks) => expect(memoryScale(top)).toEqual({ top, ticks }));

test.each([[1, [0, 1, 2]], [16, [0, 8, 16]], [17, [0, 16, 32]]])(
  "a micro-batch of %s has ticks %s and air above", (highest, ticks) => {
    const scale = microScale(highest);
    expect(scale.ticks).toEqual(ticks);
    expect(scale.top).toBeGreaterThan(ticks[2]!);
  });

test.each([0.004, 0.3, 1, 3.42, 3.6, 7.9, 120])("a loss of %s fits under a round top with at most five ticks", (highest) => {
  const { top, ticks } = lossScale(highest);
  expect(top).toBeGreaterThanOrEqual(highest);
  expect(top).toBeLessThan(highest * 1.6);
  expect(ticks.length).toBeLessThanOrEqual(5);
  expect(ticks[0]).toBe(0);
});

test("time ticks are round and never closer than asked", () => {
  expect(timeTicks(0, 600_000, 940, 90)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((m) => m * 60_000));
  expect(timeTicks(465_000, 585_000, 940, 90)[0]).toBe(465_000);
  const week = timeTicks(0, 7 * 86_400_000, 940, 90);
  expect(week.length).toBeLessThanOrEqual(940 / 90 + 1);
});

test("names that would overlap are pushed apart and stay inside", () => {
  expect(pushApart([10, 12, 60], 17, 0, 100)).toEqual([10, 27, 60]);
  expect(pushApart([95, 96, 97], 17, 0, 100)).toEqual([66, 83, 100]);
  expect(pushApart([50, 10], 17, 0, 100)).toEqual([50, 10]);
  expect(pushApart([-20], 17, 4, 100)).toEqual([4]);
});

test("of two overlapping texts the newer one stays", () => {
  expect(keepNewest([{ left: 0, right: 50 }, { left: 40, right: 90 }, { left: 95, right: 120 }])).toEqual([false, true, true]);
});

test("following shows the last minutes up to now, and a young run on half a minute", () => {
  expect(stretch({ follow: true, lengthMs: 120_000 }, 500_000)).toEqual({ fromMs: 380_000, toMs: 500_000 });
  expect(stretch({ follow: true, lengthMs: whole }, 500_000)).toEqual({ fromMs: 0, toMs: 500_000 });
  expect(stretch({ follow: true, lengthMs: 600_000 }, 4_000)).toEqual({ fromMs: 0, toMs: 30_000 });
});

test("zooming keeps the instant under the cursor in place", () => {
  const zoomed = stretch(zoom({ follow: true, lengthMs: 400_000 }, 0.5, 500_000, 200_000), 500_000);
  expect(zoomed).toEqual({ fromMs: 150_000, toMs: 350_000 });
  expect(zoom({ follow: true, lengthMs: 400_000 }, 0.5, 500_000)).toEqual({ follow: true, lengthMs: 200_000 });
  expect(zoom({ follow: true, lengthMs: 400_000 }, 2, 500_000)).toEqual({ follow: true, lengthMs: whole });
});

test("panning ends following and stops at the run's ends", () => {
  expect(pan({ follow: true, lengthMs: 100_000 }, -50_000, 500_000)).toEqual({ follow: false, fromMs: 350_000, toMs: 450_000 });
  expect(pan({ follow: true, lengthMs: 100_000 }, 50_000, 500_000)).toEqual({ follow: false, fromMs: 400_000, toMs: 500_000 });
  expect(pan({ follow: false, fromMs: 10_000, toMs: 60_000 }, -90_000, 500_000)).toEqual({ follow: false, fromMs: 0, toMs: 50_000 });
});

test.each([[1132, 470], [1032, 410], [1552, 610]])("panels fill %s x %s without touching", (width, height) => {
  const place = layout(width, height);
  expect(place.loss.canvasTop + place.loss.canvasHeight).toBe(height);
  expect(place.micro.top).toBeGreaterThan(place.memory.top + place.memory.height);
  expect(place.loss.top).toBeGreaterThan(place.micro.top + place.micro.height);
});

test.each([
  ["shrink", 8, 4, "down"], ["grow", 4, 8, "up"], ["pause", 4, 0, "down"], ["continue", 0, 1, "up"], ["cancel", 1, 1, null],
  ["prefetch", 8, 8, "diamond"], ["checkpoint_more", 1, 1, "diamond"], ["checkpoint_more", 1, 0, "diamond"],
  ["checkpoint_less", 8, 8, "diamond"], ["moments", 1, 1, "diamond"],
] as const)("a %s from %s to %s is drawn as %s", (change, from, to, shape) => expect(shapeOf({ change, from, to })).toBe(shape));
