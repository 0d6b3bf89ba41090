// The confusion matrix: its layout, its keys, and what its cells are called.
import { expect, test } from "vitest";
import { drawn, inWords } from "../src/results/comparedChart";
import { described, layout, moved } from "../src/results/confusionMatrix";
import type { ReportView } from "../src/types";

test("names and counts are shown as long as they can be read", () => {
  const few = layout(6, 9, 560, 560);
  expect(few.readable).toBe(true);
  expect(few.left + 6 * few.cell).toBeLessThanOrEqual(560);
  const many = layout(200, 9, 560, 560);
  expect(many.readable).toBe(false);
  expect(many.cell).toBe(2);
  expect(layout(2000, 9, 560, 560).cell).toBe(1);
});

test("arrow keys move within the matrix", () => {
  expect(moved([0, 0], "ArrowUp", 3)).toEqual([0, 0]);
  expect(moved([0, 0], "ArrowDown", 3)).toEqual([1, 0]);
  expect(moved([1, 2], "ArrowRight", 3)).toEqual([1, 2]);
  expect(moved([1, 2], "Home", 3)).toEqual([1, 0]);
  expect(moved([1, 0], "End", 3)).toEqual([1, 2]);
  expect(moved([1, 0], "a", 3)).toBeNull();
});

test("a cell is described in words", () => {
  const report = { classes: [{ name: "ibis" }, { name: "llama" }], confusion: [[0, 1, 1], [1, 1, 6]] } as unknown as ReportView;
  expect(described(report, [0, 1], "image")).toBe("ibis, predicted as llama: 1 image");
  expect(described(report, [1, 1], "image")).toBe("llama, recognized: 6 images");
  expect(described(report, [1, 0], "image")).toBe("llama, predicted as ibis: 0 images");
});

test("two curves share the axes of a chart", () => {
  const curves = { title: "Held-out loss", fraction: false, own: [[10, 2], [100, 0.5]], other: [[10, 40], [50, 1]] } as const;
  const both = { ...curves, own: [...curves.own], other: [...curves.other] } as unknown as Parameters<typeof drawn>[0];
  const chart = drawn(both, 200, 100);
  // The axis ends at the last step of the longer run.
  expect(chart.paths[0]).toMatch(/^M20\.0 .*L200\.0 /);
  expect(chart.paths[1]).toMatch(/L100\.0 /);
  expect(chart.x.at(-1)).toEqual([200, "100"]);
  // An axis for 40 would press the ends of both curves onto the ground.
  const late = { ...both, other: [[5, 40], [50, 1]] as [number, number][] };
  expect(Number(drawn(late, 200, 100).y.at(-1)![1])).toBeLessThan(4);
  expect(inWords(both, "step")).toBe("Held-out loss by step. At the end, this run has 0.500, and the other run has 1.00.");
});

test("a chart of fractions is in percent, and a run without values has no curve", () => {
  const chart = drawn({ title: "Held-out accuracy", fraction: true, own: [[5, 0.25]], other: [] }, 100, 100);
  expect(chart.y.map(([, text]) => text)).toEqual(["0 %", "50 %", "100 %"]);
  expect(chart.paths).toEqual(["M100.0 75.0", ""]);
});
