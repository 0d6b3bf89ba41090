// What the training did during a stress test.
import type { StressSpan } from "../chart/scene";
import type { Mark } from "../types";
import { t } from "../strings/t";

/** A change follows its cause within so many milliseconds. */
const REACTION_MS = 1000;

export const stressReaction = (marks: Mark[], { fromMs, toMs }: StressSpan): string => {
  const during = marks.filter(({ at_ms }) => at_ms >= fromMs && at_ms <= toMs + REACTION_MS);
  const shrunk = during.find(({ from, to }) => to < from);
  if (!shrunk) return t("Ebb had enough memory and did not reduce the micro-batch.");
  return shrunk.to === 0 ? t("Ebb waited for memory. This does not change the result of the training.") : t("Ebb reduced the micro-batch from {from} to {to}. This does not change the result of the training.", { from: shrunk.from, to: shrunk.to });
};
