// The bytes of a pull, the checks of settings, and the memory bar.
import { expect, test } from "vitest";
import { OTHER, startingPoints, checkpointName, fieldErrors, rate, steps } from "../src/plan/settings";
import { parts, place } from "../src/plan/memoryBar";
import { indexAt } from "../src/training/nearest";
import { pack, unpack } from "../src/unpackPull";
import type { EstimateView, MachineView, PlanSettings, PlanView, PullHeader } from "../src/types";

const GB = 2 ** 30;

test.each(["", "x", "é, three bytes more", "a longer message"])("a pull with the message '%s' is unchanged by packing", (message) => {
  const header = { version: 7, status_line: { message } } as Omit<PullHeader, "arrays">;
  const pull = unpack(pack(header, { "loss.at": [1, 2, 3], "loss.raw": [0.5, Number.NaN, 0.25], empty: [] }));
  expect(pull.header.version).toBe(7);
  expect(pull.header.status_line.message).toBe(message);
  expect([...pull.array("loss.raw")]).toEqual([0.5, Number.NaN, 0.25]);
  expect(pull.array("loss.at")[2]).toBe(3);
  expect(pull.array("empty")).toHaveLength(0);
  expect(pull.array("unknown")).toHaveLength(0);
});

const settings: PlanSettings = {
  task: "image-classification", from: null, trains: "all", model: "convnet", resolution: 64, effective_batch: 64, epochs: 30, learning_rate: 1e-3, augment: "standard", checkpoint_every: "10min", max_system_fraction: 0.9, courtesy: "auto", seed: 7, other_settings: {},
};

test("a setting out of range has an error at its field", () => {
  expect(fieldErrors(settings)).toEqual({});
  const wrong = fieldErrors({ ...settings, epochs: 0, effective_batch: 2.5, learning_rate: Number.NaN, seed: -1 });
  expect(Object.keys(wrong).sort()).toEqual(["effective_batch", "epochs", "learning_rate", "seed"]);
});

test("weights chosen before can be chosen again, if the task takes any", () => {
  const weights = [{ id: "weights-1", name: "minilm" }];
  expect(startingPoints(true, weights)).toEqual([["", "Random weights"], ["weights-1", "minilm"], [OTHER, "Pretrained weights…"]]);
  expect(startingPoints(false, weights)).toEqual([["", "Random weights"]]);
});

test("the short last batch of an epoch is a step", () => expect(steps(settings, 972)).toBe(480));

test("settings are shown in readable form", () => {
  expect([rate(5e-5), rate(0.001), checkpointName("10min"), checkpointName("odd")]).toEqual(["5e-5", "0.001", "Every 10 minutes", "odd"]);
});

test("the value under the cursor is the last one known", () => {
  expect([0, 5, 10, 15, 99].map((ms) => indexAt([5, 10, 10, 20], ms))).toEqual([-1, 0, 2, 2, 3]);
});

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
