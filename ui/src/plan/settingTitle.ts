/** What a setting is called: "Weight decay" for "weight_decay". */
export const title = (key: string) => {
  if (key === "from") return "Start from";
  const words = key.replace(/_bytes$/, "").replaceAll("_", " ").replace(/^ema\b/, "EMA");
  return words[0]!.toUpperCase() + words.slice(1);
};
