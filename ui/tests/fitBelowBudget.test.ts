// The plan while the slider moves.
import { expect, test } from "vitest";
import { fitBelowBudget } from "../src/plan/fitBelowBudget";
import type { EstimateView, MachineView } from "../src/types";

const machine = { system_bytes: 10, others_bytes: 20, total_bytes: 200 } as MachineView;
const estimate: EstimateView = {
  parameters: 1, state_bytes: 15, activations_bytes: 25, peak_bytes: 40, interval: [0.9, 1.1], micro_batch: 4, accumulation: 4, checkpoint_blocks: 0, learning_rate: 1e-3, cut_texts: 0,
  peaks: [[1, 20], [2, 25], [4, 40], [16, 100]], refusal: null, recovery: [],
};

test("a lower line means a smaller micro-batch, more often, with a lower peak", () => {
  const lower = fitBelowBudget(estimate, machine, 30 + 39, 16);
  expect([lower.micro_batch, lower.accumulation, lower.peak_bytes, lower.activations_bytes]).toEqual([2, 8, 25, 10]);
  const higher = fitBelowBudget(estimate, machine, 30 + 100, 16);
  expect([higher.micro_batch, higher.accumulation]).toEqual([16, 1]);
});

test("a line below the smallest peak fits nothing", () => {
  expect(fitBelowBudget(estimate, machine, 30 + 19, 16).refusal).toEqual({ needed_bytes: 20, available_bytes: 19 });
  expect(fitBelowBudget(estimate, machine, 10, 16).refusal?.available_bytes).toBe(0);
});
