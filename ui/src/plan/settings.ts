// What may be set before Train, checked in the page for a word at the field; Rust checks again.
import type { PlanSettings, WeightsView } from "../types";

export type Complaints = Partial<Record<keyof PlanSettings, string>>;

const wholeBetween = (value: number, low: number, high: number) => Number.isInteger(value) && value >= low && value <= high;

export const complaints = (settings: PlanSettings): Complaints => {
  const wrong: Complaints = {};
  if (!wholeBetween(settings.effective_batch, 1, 65_536)) wrong.effective_batch = "Give a whole number from 1 to 65,536.";
  if (!wholeBetween(settings.epochs, 1, 100_000)) wrong.epochs = "Give a whole number from 1 to 100,000.";
  if (!(settings.learning_rate >= 1e-9 && settings.learning_rate <= 1)) wrong.learning_rate = "Give a number from 1e-9 to 1.";
  if (!wholeBetween(settings.seed, 0, Number.MAX_SAFE_INTEGER)) wrong.seed = "Give a whole number, 0 or larger.";
  return wrong;
};

/** "5e-5" reads better than 0.00005. */
export const rate = (value: number) => (value >= 1e-3 ? String(value) : value.toExponential().replace("e-0", "e-"));

const checkpointNames: Record<string, string> = { min: "minutes", epochs: "epochs", steps: "steps" };

/** "10min" is "Every 10 minutes". */
export const checkpointName = (value: string) => {
  const [, amount, unit] = /^(\d+)(\D+)$/.exec(value) ?? [];
  return amount && unit ? `Every ${amount} ${checkpointNames[unit] ?? unit}` : value;
};

export const checkpointChoices = ["5min", "10min", "30min", "1epochs", "500steps"];

export const steps = (settings: PlanSettings, samples: number) => settings.epochs * Math.ceil(samples / settings.effective_batch);

/** Stands for weights that are not in the list yet. */
export const OTHER = "…";

/** What a training may begin with, value and label. */
export const begins = (published: boolean, weights: WeightsView[]): [string, string][] => {
  const known = weights.map(({ id, name }): [string, string] => [id, name]);
  return published ? [["", "Random weights"], ...known, [OTHER, "Published weights…"]] : [["", "Random weights"]];
};
