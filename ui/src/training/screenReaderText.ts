// The charts as text, for screen readers.
import { gigabytes, loss, plural } from "../format";
import type { PullHeader } from "../types";

export const summary = (header: PullHeader | null): string => {
  if (!header) return "";
  const { figures } = header;
  const memory = `Memory pressure is ${figures.level}. Ebb uses ${gigabytes(figures.own_bytes)} of the ${gigabytes(figures.budget_bytes)} GB of its budget.`;
  const micro = `The micro-batch is ${figures.micro_batch ?? "unknown"}, with ${plural(figures.changes, "change", "changes")} so far.`;
  return `${memory} ${micro} The smoothed loss is ${loss(figures.smoothed_loss)}; the held-out loss is ${loss(figures.held_out_loss)}.`;
};
