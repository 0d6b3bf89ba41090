// The charts as text, for screen readers.
import { gigabytes, loss, plural } from "../format";
import { t } from "../strings/t";
import type { PullHeader } from "../types";

export const summary = (header: PullHeader | null): string => {
  if (!header) return "";
  const { figures } = header;
  const memory = t("Memory pressure is {level}. Ebb uses {used} of the {budget} GB of its budget.", { level: t(figures.level), used: gigabytes(figures.own_bytes), budget: gigabytes(figures.budget_bytes) });
  const size = figures.micro_batch === null ? t("unknown") : figures.micro_batch;
  const micro = plural(figures.changes, "The micro-batch is {size}, with {n} change so far.", "The micro-batch is {size}, with {n} changes so far.", { size });
  return `${memory} ${micro} ${t("The smoothed loss is {smoothed}; the held-out loss is {heldOut}.", { smoothed: loss(figures.smoothed_loss), heldOut: loss(figures.held_out_loss) })}`;
};
