// The confusion matrix: its layout, its keys, and what its cells are called.
import { expect, test } from "vitest";
import { described, layout, moved } from "../src/results/matrix";
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
  expect(described(report, [0, 1], "image")).toBe("ibis, taken for llama: 1 image");
  expect(described(report, [1, 1], "image")).toBe("llama, recognized: 6 images");
  expect(described(report, [1, 0], "image")).toBe("llama, taken for ibis: 0 images");
});
