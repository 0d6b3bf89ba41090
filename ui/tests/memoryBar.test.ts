// The parts of the memory bar and the positions of their names.
import { expect, test } from "vitest";
import { parts, place } from "../src/plan/memoryBar";
import type { EstimateView, MachineView, PlanView } from "../src/types";

const GB = 2 ** 30;

const machine = { total_bytes: 24 * GB, system_bytes: 3 * GB, others_bytes: 8 * GB } as MachineView;
const plan = { budget_line_bytes: 21 * GB } as PlanView;
const estimate = { state_bytes: 2 * GB, activations_bytes: 5 * GB } as EstimateView;

test("the parts of the memory bar add up to all memory", () => {
  const total = (needed: EstimateView | null) => parts(plan.budget_line_bytes, needed, machine).reduce((sum, part) => sum + part.bytes, 0) / GB;
  expect(total(estimate)).toBeCloseTo(24);
  expect(total({ ...estimate, activations_bytes: 9 * GB })).toBeCloseTo(24);
  expect(total(null)).toBeCloseTo(24);
  expect(parts(plan.budget_line_bytes, null, machine).map((part) => part.name)).not.toContain("Ebb activations");
});

test("names in the memory bar do not overlap", () => {
  const placed = place(parts(plan.budget_line_bytes, { ...estimate, state_bytes: 0.1 * GB }, machine), 24 * GB, 700).filter((part) => part.text !== null);
  for (let i = 1; i < placed.length; i++) expect(placed[i]!.text! - placed[i - 1]!.text!).toBeGreaterThanOrEqual(50);
});

test("no name in the memory bar crosses the budget line, and no part of 0.0 GB is named", () => {
  for (let line = 5; line <= 24; line += 0.5) {
    const x = (line / 24) * 700;
    const needed = { state_bytes: 0.3 * GB, activations_bytes: 0.02 * GB } as EstimateView;
    const placed = place(parts(line * GB, needed, { ...machine, others_bytes: 1 * GB }), 24 * GB, 700, x);
    const names = placed.filter((part) => part.text !== null);
    expect(names.map((part) => part.name)).not.toContain("Ebb activations");
    for (const { name, text } of names) expect(text! > x || text! + Math.max(46, name.length * 5.8) < x).toBe(true);
  }
});

test("what does not fit does not extend beyond the bar", () => {
  const placed = place(parts(plan.budget_line_bytes, { ...estimate, activations_bytes: 15 * GB }, machine), 24 * GB, 700);
  expect(Math.max(...placed.map(({ left, width }) => left + width))).toBeCloseTo(700);
});
