// The charts in one sentence, for those who cannot see them.
import { gigabytes, loss, plural } from "../format";
import type { PullHeader } from "../types";

export const summary = (header: PullHeader | null): string => {
  if (!header) return "";
  const { figures } = header;
  const memory = `Memory: pressure ${figures.level}, Ebb uses ${gigabytes(figures.own_bytes)} GB of the ${gigabytes(figures.budget_bytes)} GB it allows itself.`;
  const micro = `Micro-batch ${figures.micro_batch ?? "not known yet"}, ${plural(figures.changes, "change", "changes")} so far.`;
  return `${memory} ${micro} Loss ${loss(figures.smoothed_loss)} smoothed, ${loss(figures.held_out_loss)} at the last evaluation.`;
};
