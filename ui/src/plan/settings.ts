// The settings of a plan. The page checks them to show errors at their fields; Rust checks them
// again.
import { count, plural } from "../format";
import { decimal, t } from "../strings/t";
import table from "../generated/limits.json";
import type { PlanSettings, PlanView, WeightsView } from "../types";

export type FieldErrors = Partial<Record<keyof PlanSettings, string>>;

/** The numbers that are typed on the page. */
const typed = ["effective_batch", "epochs", "learning_rate", "seed"] as const;
const limits: Record<(typeof typed)[number], { min: number; max: number | null; whole: boolean }> = table;

/** What a field asks for if its value is not allowed. */
const request = ({ min, max, whole }: (typeof limits)["seed"]) => {
  const shown = (value: number) => (whole ? count(value) : decimal(String(value)));
  const least = shown(min);
  if (max === null) return whole ? t("Enter a whole number, {least} or larger.", { least }) : t("Enter a number, {least} or larger.", { least });
  const range = { least, most: shown(max) };
  return whole ? t("Enter a whole number from {least} to {most}.", range) : t("Enter a number from {least} to {most}.", range);
};

export const fieldErrors = (settings: PlanSettings): FieldErrors => {
  const isWrong = (key: (typeof typed)[number]) => {
    const { min, max, whole } = limits[key];
    const value = settings[key];
    return !(value >= min && value <= (max ?? Number.MAX_SAFE_INTEGER) && (!whole || Number.isInteger(value)));
  };
  return Object.fromEntries(typed.filter(isWrong).map((key) => [key, request(limits[key])]));
};

/** "5e-5" for 0.00005. */
export const rate = (value: number) => (value >= 1e-3 ? String(value) : value.toExponential().replace("e-0", "e-"));

/** "Every 10 minutes" for "10min", "Automatic" for "auto". */
export const checkpointName = (value: string) => {
  if (value === "auto") return t("Automatic");
  const [, amount, unit] = /^(\d+)(\D+)$/.exec(value) ?? [];
  const every = Number(amount);
  if (unit === "min") return plural(every, "Every minute", "Every {n} minutes");
  if (unit === "epochs") return plural(every, "Every epoch", "Every {n} epochs");
  return unit === "steps" ? plural(every, "Every step", "Every {n} steps") : value;
};

export const checkpointChoices = ["auto", "5min", "10min", "30min", "1epochs", "500steps"];

export const steps = (settings: PlanSettings, samples: number) => settings.epochs * Math.ceil(samples / settings.effective_batch);

/** Samples of a step: an epoch may have fewer than the effective batch. */
export const samplesPerStep = (settings: PlanSettings, samples: number) => Math.min(settings.effective_batch, samples);

/** Number and unit of the parameters: "5.5", "M"; a small model has no unit. */
export const parameters = (all: number): [string, string] => (all < 1e5 ? [count(all), ""] : [decimal((all / 1e6).toFixed(all < 1e6 ? 2 : 1)), t("M")]);

/** What Ebb suggests for another model, as long as the field was not changed. */
export const suggestedFor = ({ model_sizes }: Pick<PlanView, "model_sizes">, model: string | undefined): Partial<PlanSettings> => {
  const size = model_sizes.find(([name]) => name === model);
  return size ? { resolution: size[1] } : {};
};

/** With fewer samples to train on per class, a network that starts untrained learns little. */
const FEW_PER_CLASS = 100;

/** Whether a training from random weights has too few samples. */
export const hasFewSamples = ({ from }: Pick<PlanSettings, "from">, trainSamples: number, classes: number) => from === null && classes > 1 && trainSamples / classes < FEW_PER_CLASS;

/** Passes over the samples: the epochs, unless all settings have a number of steps. */
export const passes = (settings: PlanSettings, samples: number) =>
  settings.other_settings.steps ? Number(settings.other_settings.steps) / Math.ceil(samples / settings.effective_batch) : settings.epochs;

/** The choice that opens a dialog for other weights. */
export const OTHER = "…";

/** The weights that a training can start from: value and label. */
export const startingPoints = (pretrained: boolean, weights: WeightsView[]): [string, string][] => {
  const known = weights.map(({ id, name }): [string, string] => [id, name]);
  const random: [string, string] = ["", t("Random weights")];
  return pretrained ? [random, ...known, [OTHER, t("Pretrained weights…")]] : [random];
};
