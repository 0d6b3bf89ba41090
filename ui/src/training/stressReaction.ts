// What the training did during a stress test.
import type { StressSpan } from "../chart/scene";
import type { Mark } from "../types";
import { t } from "../strings/t";

/** A change follows its cause within so many milliseconds. */
const REACTION_MS = 1000;

export const stressReaction = (marks: Mark[], { fromMs, toMs }: Pick<StressSpan, "fromMs" | "toMs">): string => {
  const during = marks.filter(({ at_ms }) => at_ms >= fromMs && at_ms <= toMs + REACTION_MS);
  const shrunk = during.find(({ from, to }) => to < from);
  if (!shrunk) return t("Ebb had enough memory and did not reduce the micro-batch.");
  if (shrunk.to === 0) return t("Ebb waited for memory. This does not change the result of the training.");
  const sizes = { from: shrunk.from, to: shrunk.to };
  const back = marks.find(({ at_ms, to }) => at_ms > toMs && to >= shrunk.from);
  if (!back) return t("Ebb reduced the micro-batch from {from} to {to}. This does not change the result of the training.", sizes);
  return t("Ebb reduced the micro-batch from {from} to {to}, and increased it again {seconds} s after the test. This does not change the result of the training.", { ...sizes, seconds: Math.max(1, Math.round((back.at_ms - toMs) / 1000)) });
};
