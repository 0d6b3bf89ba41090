// The settings of a plan. The page checks them to show errors at their fields; Rust checks them
// again.
import { count } from "../format";
import table from "../generated/limits.json";
import type { PlanSettings, WeightsView } from "../types";

export type FieldErrors = Partial<Record<keyof PlanSettings, string>>;

/** The numbers that are typed on the page. */
const typed = ["effective_batch", "epochs", "learning_rate", "seed"] as const;
const limits: Record<(typeof typed)[number], { min: number; max: number | null; whole: boolean }> = table;

/** What a field asks for if its value is not allowed. */
const request = ({ min, max, whole }: (typeof limits)["seed"]) => {
  const kind = whole ? "whole number" : "number";
  const shown = whole ? count : String;
  return max === null ? `Enter a ${kind}, ${shown(min)} or larger.` : `Enter a ${kind} from ${shown(min)} to ${shown(max)}.`;
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

const checkpointNames: Record<string, string> = { min: "minutes", epochs: "epochs", steps: "steps" };

/** "Every 10 minutes" for "10min", "Automatic" for "auto". */
export const checkpointName = (value: string) => {
  if (value === "auto") return "Automatic";
  const [, amount, unit] = /^(\d+)(\D+)$/.exec(value) ?? [];
  if (!amount || !unit) return value;
  const name = checkpointNames[unit] ?? unit;
  return amount === "1" ? `Every ${name.slice(0, -1)}` : `Every ${amount} ${name}`;
};

export const checkpointChoices = ["auto", "5min", "10min", "30min", "1epochs", "500steps"];

export const steps = (settings: PlanSettings, samples: number) => settings.epochs * Math.ceil(samples / settings.effective_batch);

/** Samples of a step: an epoch may have fewer than the effective batch. */
export const samplesPerStep = (settings: PlanSettings, samples: number) => Math.min(settings.effective_batch, samples);

/** Number and unit of the parameters: "5.5", "M"; a small model has no unit. */
export const parameters = (all: number): [string, string] => (all < 1e5 ? [count(all), ""] : [(all / 1e6).toFixed(all < 1e6 ? 2 : 1), "M"]);

/** Passes over the samples: the epochs, unless all settings have a number of steps. */
export const passes = (settings: PlanSettings, samples: number) =>
  settings.other_settings.steps ? Number(settings.other_settings.steps) / Math.ceil(samples / settings.effective_batch) : settings.epochs;

/** The choice that opens a dialog for other weights. */
export const OTHER = "…";

/** The weights that a training can start from: value and label. */
export const startingPoints = (pretrained: boolean, weights: WeightsView[]): [string, string][] => {
  const known = weights.map(({ id, name }): [string, string] => [id, name]);
  return pretrained ? [["", "Random weights"], ...known, [OTHER, "Pretrained weights…"]] : [["", "Random weights"]];
};
