// The sheet of all settings: its rows, and the values that the plan page shows itself.
import table from "../generated/settings.json";
import type { PlanSettings, SettingView } from "../types";
import { title } from "./settingTitle";
import { translate, t } from "../strings/t";

export const rows = table as SettingView[];

/** The rows that contain every word of the query, in their key, heading, help or default. */
export const search = (query: string): SettingView[] => {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    const both = [row.group, row.help, row.default].flatMap((text) => [text, translate(text)]);
    const text = [row.key, title(row.key), ...both, row.field.kind === "words" ? row.field.words.join(" ") : ""].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
};

export const groups = (found: SettingView[]): [string, SettingView[]][] =>
  [...new Set(found.map(({ group }) => group))].map((group) => [group, found.filter((row) => row.group === group)]);

const isAdapter = (trains: string) => trains.startsWith("adapter:");

/** The text of a setting that the plan page shows itself; empty if it does not apply. */
export const planText = (key: string, settings: PlanSettings): string => {
  const images = settings.augment !== null;
  const { trains } = settings;
  if (key === "image_size") return images ? String(settings.resolution) : "";
  if (key === "tokens") return images ? "" : String(settings.resolution);
  if (key === "train_only") return settings.from && !isAdapter(trains) ? trains : "";
  if (key === "adapter_rank") return settings.from && isAdapter(trains) ? trains.slice("adapter:".length) : "";
  return String(settings[key as keyof PlanSettings] ?? "");
};

/** A setting that the plan page shows itself, as a change of the plan. */
export const planChange = (key: string, text: string): Partial<PlanSettings> => {
  if (key === "image_size" || key === "tokens") return { resolution: Number(text) };
  if (key === "train_only") return { trains: text };
  if (key === "adapter_rank") return { trains: `adapter:${text}` };
  const words = ["task", "model", "augment", "checkpoint_every", "courtesy"];
  return { [key]: words.includes(key) ? text : key === "from" ? text || null : Number(text) };
};

const FOR_IMAGES = ["image_size", "augment", "mix", "targets", "target_weight", "loss_balance", "group_by", "workers"];
const FOR_TEXTS = ["tokens", "loss_on", "packing", "length_buckets", "preference_beta", "vocabulary", "text_column", "token_dropout"];

/** Why a setting cannot be changed in this plan; empty if it can. */
export const notUsed = ({ key, group }: SettingView, settings: PlanSettings): string => {
  const images = settings.augment !== null;
  if ((images ? FOR_TEXTS : FOR_IMAGES).includes(key)) return images ? t("Only for texts.") : t("Only for images.");
  if (group === "Token compression" && settings.task !== "token-compression") return t("Only for the task token compression.");
  if (["train_only", "adapter_rank"].includes(key) && !settings.from) return t("Choose pretrained weights first.");
  return "";
};
