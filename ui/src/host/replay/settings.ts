// Made-up answers for the sheet of all settings in a plain browser.
import { rows } from "../../plan/allSettings";
import type { Typed, SettingsHost } from "../settings";

const defaults: Typed = {
  optimizer: "adamw", weight_decay: "0.05", warmup_fraction: "0.05", label_smoothing: "0.1", clip_norm: "1.0", precision: "f32", checkpoint_blocks: "0",
  steps: "480", evaluate_every_epochs: "1", learning_rate: "5e-5",
};
let data: Typed = {};

/** Numbers are checked like the program checks them; the other rules are the program's own. */
const wrong = ([key, text]: [string, string]): [string, string][] => {
  const field = rows.find((row) => row.key === key)?.field;
  if (field?.kind !== "number") return [];
  const [value, max] = [Number(text), field.max ?? Number.MAX_SAFE_INTEGER];
  if (text !== "" && value >= field.min && value <= max && (!field.whole || Number.isInteger(value))) return [];
  return [[key, `Must be a ${field.whole ? "whole " : ""}number from ${field.min} to ${max}.`]];
};

export const settingsHost: SettingsHost = {
  values: async (_inspection, settings) => {
    const both = settings.other_settings.adapter_alpha && !settings.from;
    return { data, defaults, problem: both ? "adapter_alpha is set, but no adapters are trained. Set adapter_rank as well." : "" };
  },
  changed: async (_inspection, settings) => Object.fromEntries(Object.entries(settings.other_settings).filter(([key, text]) => defaults[key] !== text)) as Typed,
  check: async (typed) => Object.fromEntries(Object.entries(typed).flatMap(wrong)),
  setData: async (_inspection, key, text) => {
    const { [key]: _, ...others } = data;
    data = text ? { ...others, [key]: text } : others;
  },
};
