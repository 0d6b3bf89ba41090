import { translate, t } from "../strings/t";

/** What a setting is called: "Weight decay" for "weight_decay". */
export const title = (key: string) => {
  if (key === "from") return t("Start from");
  const words = key.replace(/_bytes$/, "").replaceAll("_", " ").replace(/^ema\b/, "EMA");
  return translate(words[0]!.toUpperCase() + words.slice(1));
};
