// The settings of a plan. The page checks them to show errors at their fields; Rust checks them
// again.
import type { PlanSettings, WeightsView } from "../types";

export type FieldErrors = Partial<Record<keyof PlanSettings, string>>;

const isIntegerIn = (value: number, low: number, high: number) => Number.isInteger(value) && value >= low && value <= high;

export const fieldErrors = (settings: PlanSettings): FieldErrors => {
  const wrong: FieldErrors = {};
  if (!isIntegerIn(settings.effective_batch, 1, 65_536)) wrong.effective_batch = "Enter a whole number from 1 to 65,536.";
  if (!isIntegerIn(settings.epochs, 1, 100_000)) wrong.epochs = "Enter a whole number from 1 to 100,000.";
  if (!(settings.learning_rate >= 1e-9 && settings.learning_rate <= 1)) wrong.learning_rate = "Enter a number from 1e-9 to 1.";
  if (!isIntegerIn(settings.seed, 0, Number.MAX_SAFE_INTEGER)) wrong.seed = "Enter a whole number, 0 or larger.";
  return wrong;
};

/** "5e-5" for 0.00005. */
export const rate = (value: number) => (value >= 1e-3 ? String(value) : value.toExponential().replace("e-0", "e-"));

const checkpointNames: Record<string, string> = { min: "minutes", epochs: "epochs", steps: "steps" };

/** "Every 10 minutes" for "10min". */
export const checkpointName = (value: string) => {
  const [, amount, unit] = /^(\d+)(\D+)$/.exec(value) ?? [];
  return amount && unit ? `Every ${amount} ${checkpointNames[unit] ?? unit}` : value;
};

export const checkpointChoices = ["5min", "10min", "30min", "1epochs", "500steps"];

export const steps = (settings: PlanSettings, samples: number) => settings.epochs * Math.ceil(samples / settings.effective_batch);

/** The choice that opens a dialog for other weights. */
export const OTHER = "…";

/** The weights that a training can start from: value and label. */
export const startingPoints = (pretrained: boolean, weights: WeightsView[]): [string, string][] => {
  const known = weights.map(({ id, name }): [string, string] => [id, name]);
  return pretrained ? [["", "Random weights"], ...known, [OTHER, "Pretrained weights…"]] : [["", "Random weights"]];
};
