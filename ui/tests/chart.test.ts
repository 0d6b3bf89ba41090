// Axes, names, time ranges and marks of the charts, and the table of series.
import { expect, test } from "vitest";
import { keepNewest, pushApart } from "../src/chart/overlap";
import { layout } from "../src/chart/layout";
import { shapeOf } from "../src/chart/marks";
import { noTops, prepareScene } from "../src/chart/scene";
import { PANELS, SERIES, seriesOf, timesOf } from "../src/chart/series";
import { pan, timeRange, wholeRun, zoom } from "../src/chart/span";
import { lossScale, memoryScale, microScale, timeTicks } from "../src/chart/ticks";
import type { Colors } from "../src/chart/colors";
import { namesOf } from "../src/training/names";
import { readingAt } from "../src/training/reading";
import type { PullHeader } from "../src/types";
import { pack, unpack } from "../src/wire";
import recording from "../recorded/pulls.json";

test.each([[24, [0, 8, 16, 24]], [20, [0, 8, 16]], [16, [0, 4, 8, 12, 16]], [7.6, [0, 2, 4, 6]], [128, [0, 32, 64, 96, 128]]])(
  "memory of %s GB has ticks %s", (top, ticks) => expect(memoryScale(top)).toEqual({ top, ticks }));

test.each([[1, [0, 1, 2]], [16, [0, 8, 16]], [17, [0, 16, 32]]])(
  "a micro-batch of %s has ticks %s and space above", (highest, ticks) => {
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

test("time ticks are round and at least the spacing apart", () => {
  expect(timeTicks(0, 600_000, 940, 90)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((m) => m * 60_000));
  expect(timeTicks(465_000, 585_000, 940, 90)[0]).toBe(465_000);
  const week = timeTicks(0, 7 * 86_400_000, 940, 90);
  expect(week.length).toBeLessThanOrEqual(940 / 90 + 1);
});

test("overlapping names are moved apart and stay inside", () => {
  expect(pushApart([10, 12, 60], 17, 0, 100)).toEqual([10, 27, 60]);
  expect(pushApart([95, 96, 97], 17, 0, 100)).toEqual([66, 83, 100]);
  expect(pushApart([50, 10], 17, 0, 100)).toEqual([50, 10]);
  expect(pushApart([-20], 17, 4, 100)).toEqual([4]);
});

test("of two overlapping texts the newer one is drawn", () => {
  expect(keepNewest([{ left: 0, right: 50 }, { left: 40, right: 90 }, { left: 95, right: 120 }])).toEqual([false, true, true]);
});

test("following shows the last minutes, and at least 30 s", () => {
  expect(timeRange({ follow: true, lengthMs: 120_000 }, 500_000)).toEqual({ fromMs: 380_000, toMs: 500_000 });
  expect(timeRange({ follow: true, lengthMs: wholeRun }, 500_000)).toEqual({ fromMs: 0, toMs: 500_000 });
  expect(timeRange({ follow: true, lengthMs: 600_000 }, 4_000)).toEqual({ fromMs: 0, toMs: 30_000 });
});

test("zooming keeps the time under the cursor in place", () => {
  const zoomed = timeRange(zoom({ follow: true, lengthMs: 400_000 }, 0.5, 500_000, 200_000), 500_000);
  expect(zoomed).toEqual({ fromMs: 150_000, toMs: 350_000 });
  expect(zoom({ follow: true, lengthMs: 400_000 }, 0.5, 500_000)).toEqual({ follow: true, lengthMs: 200_000 });
  expect(zoom({ follow: true, lengthMs: 400_000 }, 2, 500_000)).toEqual({ follow: true, lengthMs: wholeRun });
});

test("panning stops following and ends at the ends of the run", () => {
  expect(pan({ follow: true, lengthMs: 100_000 }, -50_000, 500_000)).toEqual({ follow: false, fromMs: 350_000, toMs: 450_000 });
  expect(pan({ follow: true, lengthMs: 100_000 }, 50_000, 500_000)).toEqual({ follow: false, fromMs: 400_000, toMs: 500_000 });
  expect(pan({ follow: false, fromMs: 10_000, toMs: 60_000 }, -90_000, 500_000)).toEqual({ follow: false, fromMs: 0, toMs: 50_000 });
});

test.each([[1132, 470], [1032, 410], [1552, 610]])("panels fill %s x %s without overlap", (width, height) => {
  const { memory, micro, loss } = layout(width, height).bands;
  expect(loss.canvasTop + loss.canvasHeight).toBe(height);
  expect(micro.top).toBeGreaterThan(memory.top + memory.height);
  expect(loss.top).toBeGreaterThan(micro.top + micro.height);
});

test.each([
  ["shrink", 8, 4, "down"], ["grow", 4, 8, "up"], ["pause", 4, 0, "down"], ["continue", 0, 1, "up"], ["cancel", 1, 1, null],
  ["prefetch", 8, 8, "diamond"], ["checkpoint_more", 1, 1, "diamond"], ["checkpoint_more", 1, 0, "diamond"],
  ["checkpoint_less", 8, 8, "diamond"], ["moments", 1, 1, "diamond"],
] as const)("a %s from %s to %s is drawn as %s", (change, from, to, shape) => expect(shapeOf({ change, from, to })).toBe(shape));

test("all curves of a panel share their times", () => {
  for (const { id } of PANELS) {
    const curves = seriesOf(id).filter((row) => row.array && row.drawing !== "diamonds");
    expect(new Set(curves.map((row) => timesOf(row.array!))).size).toBe(1);
  }
});

test("the table has a row for every array of a pull", () => {
  const arrays = recording.pools.map(([name]) => name as string);
  const rows = SERIES.flatMap((row) => (row.array ? [row.array, timesOf(row.array)] : []));
  expect(new Set(rows)).toEqual(new Set(arrays));
});

const GB = 2 ** 30;
const arrays = {
  "memory.at": [0, 1000], "memory.system": [2 * GB, 2 * GB], "memory.others": [3 * GB, 4 * GB], "memory.state": [GB, GB],
  "memory.activations": [GB, 2 * GB], "memory.budget": [12 * GB, 12 * GB], "micro.at": [0, 1000], "micro.value": [4, 8],
  "loss.at": [0, 1000], "loss.raw": [2, Number.NaN], "loss.smoothed": [2, 1.5], "loss.learning_rate": [1e-3, 2.5e-4], "evaluation.at": [1000], "evaluation.loss": [1.25],
};
const header = {
  marks: [], spans: [], started: { total_bytes: 16 * GB }, figures: { micro_batch: 8, micro_batches: 2, loss: null, smoothed_loss: 1.5, held_out_loss: 1.25 },
} as unknown as PullHeader;
const pull = unpack(pack(header, arrays));
const sample = () => prepareScene(pull, { fromMs: 0, toMs: 1000 }, {} as Colors, noTops());

test("layers are stacked and axes reach the highest value", () => {
  const scene = sample();
  const high = seriesOf("memory").map((row) => [row.name, scene.series.get(row)!.high[1]]);
  expect(high).toEqual([["Budget line", 12], ["Ebb activations", 9], ["Ebb state", 7], ["Other apps", 6], ["System", 2]]);
  expect([scene.scales.memory.top, scene.scales.micro.top, scene.scales.loss.top]).toEqual([16, 9, 2]);
});

test("a curve with a scale of its own ends below the top and stretches no axis", () => {
  const scene = sample();
  const row = seriesOf("loss").find(({ ownScale }) => ownScale)!;
  const drawn = scene.series.get(row)!;
  expect(scene.scales.loss.top).toBe(2);
  expect([...drawn.high].map((value) => Number(value!.toFixed(3)))).toEqual([1.818, 0.455]);
  expect([...drawn.values]).toEqual([1e-3, 2.5e-4]);
});

test("names show the current values", () => {
  const { bands } = layout(1132, 470);
  const names = PANELS.flatMap(({ id }) => namesOf(id, sample(), header, bands[id]).map(({ name, value }) => `${name} ${value}`));
  expect(names).toEqual([
    "Budget line 12.0", "Ebb activations 2.0", "Ebb state 1.0", "Other apps 4.0", "System 2.0", "Micro-batch 8", "Per step 2",
    "Evaluation 1.25", "Smoothed 1.50", "Raw –", "Learning rate 2.5e-4",
  ]);
});

test("the cursor shows the values known at its time", () => {
  expect(readingAt(sample(), 500, 10).rows).toEqual([
    ["Budget line", "12.0 GB"], ["In use", "7.0 GB"], ["Ebb", "2.0 GB"], ["Micro-batch", "4"], ["Loss, smoothed", "2.00"], ["Learning rate", "1.0e-3"],
  ]);
  expect(readingAt(sample(), -1, 10).rows[0]).toEqual(["Budget line", "–"]);
});
