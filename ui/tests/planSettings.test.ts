// The settings of a plan: their checks, and how they are shown.
import { expect, test } from "vitest";
import { OTHER, hasFewSamples, startingPoints, suggestedFor, checkpointName, fieldErrors, rate, steps } from "../src/plan/settings";
import type { PlanSettings } from "../src/types";

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

test("another model brings its own image size, which a changed field keeps", () => {
  const plan = { model_sizes: [["convnet", 64], ["vit", 224]] as [string, number][] };
  expect(suggestedFor(plan, "vit")).toEqual({ resolution: 224 });
  expect([suggestedFor(plan, undefined), suggestedFor(plan, "text_mini")]).toEqual([{}, {}]);
  const changed = { model: "vit", resolution: 96 };
  expect({ ...settings, ...suggestedFor(plan, changed.model), ...changed }.resolution).toBe(96);
});

test("few samples per class are too few to train from scratch", () => {
  expect(hasFewSamples(settings, 972, 20)).toBe(true);
  expect(hasFewSamples(settings, 2000, 20)).toBe(false);
  expect(hasFewSamples({ ...settings, from: "weights-1" }, 972, 20)).toBe(false);
  expect(hasFewSamples(settings, 50, 0)).toBe(false);
});
