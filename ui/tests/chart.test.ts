// Axes, names, time ranges and marks of the charts, and the table of series.
import { expect, test } from "vitest";
import { keepNewest, placeLabels, pushApart } from "../src/chart/overlap";
import { isOverFirst, layout, leastHeight } from "../src/chart/layout";
import { labelOf, shapeOf } from "../src/chart/changeMarks";
import { noTops, prepareScene } from "../src/chart/scene";
import { PANELS, possiblePanels, SERIES, seriesOf, speed, speedUnit, timesOf } from "../src/chart/series";
import { firstSpan, pan, select, timeRange, wholeRun, zoom } from "../src/chart/timeRange";
import { axisOf, timeAxis } from "../src/chart/axis";
import { defaultOptions, parseOptions, smoothedSteps, type ChartOptions } from "../src/chart/viewOptions";
import { logScale, lossScale, memoryScale, microScale, roundTicks, timeTicks } from "../src/chart/ticks";
import { tickClock } from "../src/format";
import type { Colors } from "../src/chart/canvasTheme";
import { namesOf, placesOf } from "../src/training/seriesLabels";
import { indexAt, nearestMark } from "../src/training/nearest";
import { readingAt } from "../src/training/valuesAtCursor";
import type { Mark, PullHeader, Started } from "../src/types";
import { pack, unpack } from "../src/unpackPull";
import recording from "../recorded/pulls.json";

test.each([[24, [0, 8, 16, 24]], [23.5, [0, 8, 16, 23.5]], [16, [0, 4, 8, 12, 16]], [7.6, [0, 2, 4, 6, 7.6]], [128, [0, 32, 64, 96, 128]]])(
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

test("a whole hour has a short label", () => expect([0, 90_000, 7_200_000, 7_260_000].map(tickClock)).toEqual(["0:00", "1:30", "2 h", "2:01:00"]));

test("round ticks cover a range of steps or epochs", () => {
  expect(roundTicks(0, 257, 10, true)).toEqual([0, 50, 100, 150, 200, 250]);
  expect(roundTicks(2.3, 2.9, 4, false)).toEqual([2.4, 2.6, 2.8]);
  expect(roundTicks(3, 5, 10, true)).toEqual([3, 4, 5]);
});

test("a logarithmic scale has ticks of 1, 2 and 5, or powers of ten over many", () => {
  expect(logScale(0.4, 3.5).ticks.map((tick) => Number((10 ** tick).toPrecision(3)))).toEqual([0.5, 1, 2]);
  expect(logScale(1e-4, 9).ticks.map((tick) => Math.round(tick))).toEqual([-4, -3, -2, -1, 0]);
});

test("smoothing covers a share of the run", () => {
  expect(smoothedSteps(0, 400_000)).toBe(1);
  expect(smoothedSteps(55, 257)).toBeCloseTo(9.5, -1);
  expect(smoothedSteps(55, 400_000)).toBeGreaterThan(400);
  expect(smoothedSteps(100, 400_000)).toBeLessThanOrEqual(140_000);
  expect(smoothedSteps(55, 400_001)).toBe(smoothedSteps(55, 400_000));
});

test("remembered options of another version are completed", () => {
  expect(parseOptions(null)).toEqual(defaultOptions);
  expect(parseOptions("{")).toEqual(defaultOptions);
  expect(parseOptions('{"log":true,"panels":7}')).toEqual({ ...defaultOptions, log: true });
});

test("a range is selected by two times, in any order", () => {
  expect(select(30_000, 10_000, 500_000)).toEqual({ follow: false, fromMs: 10_000, toMs: 30_000 });
  expect(select(10_000, 10_050, 500_000)).toBeNull();
  expect(timeRange(select(10_000, 11_000, 500_000)!, 0)).toEqual({ fromMs: 9_500, toMs: 11_500 });
});

test("zooming out to everything follows the run again", () => {
  expect(zoom({ follow: false, fromMs: 100_000, toMs: 400_000 }, 4, 500_000, 200_000)).toEqual({ follow: true, lengthMs: wholeRun });
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

test("the label of a change covers no other change and no newer label", () => {
  const lines = [80, 96, 120, 151, 812];
  const changes = lines.map((x) => ({ x, width: 40 }));
  expect(placeLabels(changes, lines, 64, 1008)).toEqual([null, null, null, 161, 822]);
  // Changes that have no label of their own, too.
  expect(placeLabels([{ x: 100, width: 40 }], [100, 130], 64, 1008)).toEqual([null]);
  expect(placeLabels([{ x: 100, width: 40 }, { x: 170, width: 40 }], [100, 170], 64, 1008)).toEqual([110, 180]);
  // At the end of the plot it stands at the left, if it is free there.
  expect(placeLabels([{ x: 990, width: 40 }], [990], 64, 1008)).toEqual([940]);
  expect(placeLabels([{ x: 950, width: 20 }, { x: 990, width: 40 }], [950, 990], 64, 1008)).toEqual([960, null]);
});

test("the names of the first panel stay below the switch of the memory shown", () => {
  const { bands } = layout(1132, 470);
  const names = [0, 0, 0].map((y) => ({ y }));
  const top = placesOf(names, bands.memory)[0]! - 8;
  expect(top).toBeGreaterThan(22);
  expect(placesOf(names, bands.loss)[0]).toBe(bands.loss.top + 4);
  // Seven names in a low panel are closer to each other.
  const low = placesOf(Array.from({ length: 7 }, () => ({ y: 30 })), { top: 24, height: 106 });
  expect([Math.min(...low) - 8 > 22, Math.max(...low)]).toEqual([true, 122]);
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
  ["prefetch", 8, 8, "square"], ["checkpoint_more", 1, 1, "square"], ["checkpoint_more", 1, 0, "square"],
  ["checkpoint_less", 8, 8, "square"], ["moments", 1, 1, "square"],
] as const)("a %s from %s to %s is drawn as %s", (change, from, to, shape) => expect(shapeOf({ change, from, to })).toBe(shape));

test("a new size is labeled with the sizes only, other changes with their text", () => {
  const reduced = { change: "shrink", from: 16, to: 8, short: "Micro-batch reduced from 16 to 8" } as const;
  expect(labelOf(reduced)).toBe("16 to 8");
  expect(labelOf({ ...reduced, change: "grow", from: 8, to: 16 })).toBe("8 to 16");
  expect(labelOf({ ...reduced, change: "pause", to: 0, short: "Paused" })).toBe("Paused");
});

test("the nearest change attracts the cursor, of two equal ones the newer", () => {
  const marks = [100, 200, 200, 900].map((at_ms, i) => ({ at_ms, short: String(i) }) as Mark);
  expect([nearestMark(marks, 160, 50), nearestMark(marks, 500, 50), nearestMark(marks, 880, 50)].map((mark) => mark?.short)).toEqual(["2", undefined, "3"]);
});

test("all curves of a panel share their times", () => {
  for (const { id } of PANELS) {
    const curves = seriesOf(id).filter((row) => row.array && row.drawing !== "diamonds");
    expect(new Set(curves.map((row) => timesOf(row.array!))).size).toBe(1);
  }
});

test("the table has a row for every array of a pull", () => {
  const arrays = recording.pools.map(([name]) => name as string);
  const rows = SERIES.flatMap((row) => (row.array ? [row.array, timesOf(row.array)] : []));
  // The recorded run was trained on the CPU of one machine.
  const ofSomeRuns = SERIES.filter(({ panel }) => PANELS.some(({ id, needs }) => id === panel && needs));
  const missing = ofSomeRuns.flatMap((row) => (row.array ? [row.array, timesOf(row.array)] : []));
  expect(new Set(rows)).toEqual(new Set([...arrays, ...missing]));
});

const GB = 2 ** 30;
const arrays = {
  "memory.at": [0, 1000], "memory.system": [2 * GB, 2 * GB], "memory.others": [3 * GB, 4 * GB], "memory.state": [GB, GB],
  "memory.activations": [GB, 2 * GB], "memory.cached": [0, 0], "memory.budget": [12 * GB, 12 * GB], "memory.limit": [14 * GB, 14 * GB],
  "memory.swap": [0, GB], "memory.thermal": [Number.NaN, 1],
  "micro.at": [0, 1000], "micro.value": [4, 8],
  "loss.at": [0, 1000], "loss.raw": [2, Number.NaN], "loss.smoothed": [2, 1.5], "loss.learning_rate": [1e-3, 2.5e-4], "loss.gradient_norm": [3, 1],
  "loss.samples_per_second": [10, 20], "loss.wait_ms": [1, 2], "loss.step": [1, 2],
  "evaluation.at": [1000], "evaluation.loss": [1.25], "evaluation.metric": [0.5],
};
const header = {
  marks: [], spans: [], started: { total_bytes: 16 * GB, effective_batch: 16, steps_per_epoch: 4 }, metric_name: "accuracy",
  figures: { micro_batch: 8, micro_batches: 2, loss: null, smoothed_loss: 1.5, held_out_loss: 1.25 },
} as unknown as PullHeader;
const pulled = (marks: object[] = []) => unpack(pack({ ...header, marks } as unknown as PullHeader, arrays));
const all = { fromMs: 0, toMs: 1000 };
const sample = (options: Partial<ChartOptions> = {}, range = all) =>
  prepareScene(pulled(), range, {} as Colors, noTops(), { ...defaultOptions, ...options });
const drawnBy = (scene: ReturnType<typeof sample>, name: string) => [...scene.series].find(([row]) => row.name === name)![1];

test("layers are stacked and axes reach the highest value", () => {
  const scene = sample();
  const high = seriesOf("memory").filter((row) => scene.series.has(row)).map((row) => [row.name, scene.series.get(row)!.high[1]]);
  expect(high).toEqual([["Your limit", 14], ["Budget line", 12], ["Ebb activations", 9], ["Ebb state", 7], ["Other apps", 6], ["System", 2], ["Swap", 1]]);
  expect([scene.scales.memory.top, scene.scales.micro.top, scene.scales.loss.top]).toEqual([16, 9, 2]);
});

test("Ebb's own memory has a scale of its own, and the budget stands on it", () => {
  const scene = sample({ memory: "ebb" });
  const high = seriesOf("memory").filter((row) => scene.series.has(row)).map((row) => [row.name, scene.series.get(row)!.high[1]]);
  expect(high).toEqual([["Budget line", 6], ["Ebb activations", 3], ["Ebb state", 1]]);
  expect(scene.scales.memory.top).toBeGreaterThan(3);
  expect(scene.scales.memory.top).toBeLessThan(4.1);
});

test("a curve with a scale of its own ends below the top and stretches no axis", () => {
  const scene = sample();
  const row = seriesOf("loss").find(({ ownScale }) => ownScale)!;
  const drawn = scene.series.get(row)!;
  expect(scene.scales.loss.top).toBe(2);
  expect([...drawn.high].map((value) => Number(value!.toFixed(3)))).toEqual([1.818, 0.455]);
  expect([...drawn.values]).toEqual([1e-3, 2.5e-4]);
});

test("a logarithmic loss is drawn by its logarithm, and its values stay", () => {
  const scene = sample({ log: true });
  const { high, values } = drawnBy(scene, "Smoothed");
  expect([...high].map((value) => Number((10 ** value!).toFixed(3)))).toEqual([2, 1.5]);
  expect([...values]).toEqual([2, 1.5]);
  expect(scene.scales.loss.bottom).toBeLessThan(Math.log10(1.25));
  expect(scene.scales.memory.bottom).toBe(0);
});

test("a pause is a gap in the loss", () => {
  const pull = pulled([{ at_ms: 400, from: 8, to: 0, change: "pause" }]);
  const scene = prepareScene(pull, all, {} as Colors, noTops(), defaultOptions);
  const { at, values } = drawnBy(scene, "Smoothed");
  expect([...at]).toEqual([0, 400, 1000]);
  expect([...values]).toEqual([2, null, 1.5]);
});

test("steps and epochs are an axis too", () => {
  const pull = unpack(pack(header, { ...arrays, "loss.at": [1000, 2000, 9000], "loss.step": [1, 2, 3] }));
  const steps = axisOf(pull, { ...defaultOptions, axis: "step" }, { fromMs: 0, toMs: 9000 });
  expect([0, 1000, 1500, 5500, 9000].map(steps.of)).toEqual([0, 1, 1.5, 2.5, 3]);
  expect([0, 1.5, 2.5].map(steps.back)).toEqual([0, 1500, 5500]);
  expect(steps.of(20_000)).toBeGreaterThan(3);
  const epochs = axisOf(pull, { ...defaultOptions, axis: "epoch" }, { fromMs: 0, toMs: 9000 });
  expect(epochs.of(2000)).toBe(0.5);
  expect(axisOf(unpack(pack(header, {})), { ...defaultOptions, axis: "step" }, all)).toBe(timeAxis);
});

test("names show the values at the right edge, whether now or earlier", () => {
  const named = (following: boolean, range = all) => {
    const scene = sample({}, range);
    const { bands } = layout(1132, 470);
    return scene.panels.flatMap(({ id }) => namesOf(id, scene, bands[id], following).map(({ name, value }) => `${name} ${value}`));
  };
  expect(named(true)).toEqual([
    "Your limit 14.0", "Budget line 12.0", "Ebb activations 2.0", "Ebb state 1.0", "Other apps 4.0", "System 2.0", "Swap 1.0", "Micro-batch 8", "Per step 2",
    "Evaluation 1.25", "Smoothed 1.50", "Raw –", "Learning rate 2.5e-4",
  ]);
  expect(named(false, { fromMs: 0, toMs: 500 })).toEqual([
    "Your limit 14.0", "Budget line 12.0", "Ebb activations 1.0", "Ebb state 1.0", "Other apps 3.0", "System 2.0", "Swap 0.0", "Micro-batch 4", "Per step 4",
    "Evaluation –", "Smoothed 2.00", "Raw 2.00", "Learning rate 1.0e-3",
  ]);
});

test("further panels are shown on request, with their values", () => {
  const scene = sample({ panels: ["metric", "swap", "thermal"] });
  expect(scene.panels.map(({ id }) => id)).toEqual(["memory", "micro", "loss", "metric", "swap", "thermal"]);
  const { bands } = layout(1132, 900, scene.panels);
  const names = ["metric", "swap", "thermal"] as const;
  expect(names.flatMap((id) => namesOf(id, scene, bands[id], true).map(({ value }) => value))).toEqual(["50.0 %", "1.0", "Warm"]);
  expect(leastHeight(scene.panels)).toBeGreaterThan(leastHeight(sample().panels));
});

test("the learning rate is drawn only if it is wanted", () => {
  const named = (learningRate: boolean) => [...sample({ learningRate }).series.keys()].map(({ name }) => name);
  expect(named(true)).toContain("Learning rate");
  expect(named(false)).not.toContain("Learning rate");
  expect(parseOptions('{"log":true}').learningRate).toBe(true);
});

test("swap is a line in the memory panel once there is some, and counts once beside its own panel", () => {
  const swap = (values: number[]) => prepareScene(unpack(pack(header, { ...arrays, "memory.swap": values })), all, {} as Colors, noTops(), { ...defaultOptions, panels: ["swap"] });
  const inMemory = (scene: ReturnType<typeof swap>) => [...scene.series.keys()].some(({ panel, name }) => panel === "memory" && name === "Swap");
  expect([inMemory(swap([0, 0])), inMemory(swap([0, GB]))]).toEqual([false, true]);
  const rows = readingAt(swap([GB, GB]), 500, 10).rows.filter(([name]) => name === "Swap");
  expect(rows).toEqual([["Swap", "1.0 GB"]]);
});

test("the GPU's time is offered and shown only if the run has it", () => {
  const chosen = { ...defaultOptions, panels: ["gpu" as const] };
  const shown = (more: Record<string, number[]>) => prepareScene(unpack(pack(header, { ...arrays, ...more })), all, {} as Colors, noTops(), chosen);
  const without = shown({});
  expect(without.panels.map(({ id }) => id)).toEqual(["memory", "micro", "loss"]);
  expect(possiblePanels(without.header).split(",")).not.toContain("gpu");
  const scene = shown({ "loss.command_buffer_ms": [Number.NaN, 7.25] });
  expect(scene.panels.map(({ id }) => id)).toEqual(["memory", "micro", "loss", "gpu"]);
  expect(possiblePanels(scene.header).split(",")).toEqual(PANELS.map(({ id }) => id).filter((id) => id !== "machine"));
  expect(possiblePanels(null).split(",")).not.toContain("gpu");
  expect([...drawnBy(scene, "Mean").values]).toEqual([null, 7.25]);
  const value = (ms: number) => readingAt(scene, ms, 0).rows.find(([name]) => name === "GPU, per command buffer")?.[1];
  expect([value(0), value(1000)]).toEqual(["–", "7.3 ms"]);
});

test("the cursor shows the values known at its time, and why the budget is held back", () => {
  const reading = readingAt(sample(), 500, 10);
  expect(reading.rows).toEqual([
    ["Your limit", "14.0 GB"], ["Budget line", "12.0 GB"], ["In use", "7.0 GB"], ["Ebb", "2.0 GB"], ["activations", "1.0 GB"], ["state", "1.0 GB"], ["Swap", "0.0 GB"],
    ["Micro-batch", "4"], ["Loss, held out", "–"], ["Loss, smoothed", "2.00"], ["Loss", "2.00"], ["Learning rate", "1.0e-3"], ["Step", "1"],
    ["Samples/s", "10.0"],
  ]);
  expect(reading.reason).toContain("2.0 GB below your limit");
  expect(readingAt(sample(), -1, 10).rows[0]).toEqual(["Your limit", "–"]);
});

test("a run that ended early opens at its last two minutes", () => {
  expect(timeRange(firstSpan("ended_early"), 900_000)).toEqual({ fromMs: 780_000, toMs: 900_000 });
  expect(timeRange(firstSpan("training"), 900_000)).toEqual({ fromMs: 300_000, toMs: 900_000 });
});

test("the speed of a language model is in tokens", () => {
  const started = { task: "language-model", input_size: 128, total_bytes: 16 * GB } as Started;
  expect([speed(230.4, started), speedUnit(started)]).toEqual(["29,491", "tokens/s"]);
  expect([speed(230.4, { ...started, task: "text-classification" }), speedUnit(null)]).toEqual(["230.4", "samples/s"]);
  expect(speed(null, started)).toBe("–");
  const pull = unpack(pack({ ...header, started } as unknown as PullHeader, arrays));
  const scene = prepareScene(pull, all, {} as Colors, noTops(), { ...defaultOptions, panels: ["speed"] });
  expect([...drawnBy(scene, "Samples/s").values]).toEqual([1280, 2560]);
  expect(readingAt(scene, 1000, 0).rows.find(([name]) => name === "Tokens/s")).toEqual(["Tokens/s", "2,560"]);
});

test("the memory of a chosen machine has a panel of its own", () => {
  const ofMachine = { "machine.at": [0, 1000], "machine.ebb": [2 * GB, 3 * GB], "machine.others": [5 * GB, 6 * GB], "machine.budget": [9 * GB, 10 * GB] };
  const member = { rank: 1, host: "air", device: "cpu", threads: 8, total_bytes: 16 * GB };
  const group = { ranks: [{ member }], changes: [] };
  const pull = unpack(pack({ ...header, group, shown_rank: 1 } as unknown as PullHeader, { ...arrays, ...ofMachine }));
  expect(possiblePanels(pull.header).split(",")).toContain("machine");
  expect(possiblePanels(pulled().header).split(",")).not.toContain("machine");
  const panel = PANELS.find(({ id }) => id === "machine")!;
  expect((panel.title as (header: PullHeader) => string)(pull.header)).toBe("Memory of air, rank 1");
  const drawn = (memory: ChartOptions["memory"]) => {
    const scene = prepareScene(pull, all, {} as Colors, noTops(), { ...defaultOptions, memory });
    const of = (array: string) => [...scene.series].find(([row]) => row.array === array)?.[1];
    return { budget: [...of("machine.budget")!.values], stack: [...of("machine.ebb")!.high], top: scene.scales.machine.top, values: readingAt(scene, 1000, 0).rows };
  };
  const whole = drawn("all");
  expect(whole).toMatchObject({ budget: [9, 10], stack: [7, 9], top: 16 });
  expect(whole.values).toContainEqual(["Ebb on the chosen machine", "3.0 GB"]);
  expect(drawn("ebb")).toMatchObject({ budget: [4, 4], stack: [2, 3] });
});

test("the box of the cursor leaves the memory panel if the pointer is over it", () => {
  const panels = PANELS.filter(({ choice }) => !choice);
  const place = layout(1132, 470);
  const { top, height } = place.bands.memory;
  expect([top - 5, top + height - 1, top + height + 30].map((y) => isOverFirst(y, place, panels))).toEqual([true, true, false]);
});

test("the reason of a held back budget has the amount and the time of the change", () => {
  const reason = readingAt(sample(), 1000, 10).reason;
  expect(reason).toBe("Ebb keeps the budget line 2.0 GB below your limit, because other apps' memory changed by 1.0 GB in 1 s.");
  expect(readingAt(sample(), 500, 10).reason).toBe("Ebb keeps the budget line 2.0 GB below your limit, because other apps' memory changed.");
});

test("the value under the cursor is the last one known", () => {
  expect([0, 5, 10, 15, 99].map((ms) => indexAt([5, 10, 10, 20], ms))).toEqual([-1, 0, 2, 2, 3]);
});
