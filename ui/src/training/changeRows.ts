// The rows of the list of changes: what Ebb changed, and the stress tests of this window between.
import type { StressSpan } from "../chart/scene";
import { size } from "../format";
import type { Level, Mark } from "../types";
import { stressReaction } from "./stressReaction";
import { t } from "../strings/t";

export interface ChangeRow {
  at_ms: number;
  /** `null` for a stress test, which belongs to no step. */
  step: number | null;
  level: Level;
  from: number;
  to: number;
  short: string;
  reason: string;
}

/** Begin and end of a stress test; a running one has no end yet. */
const stressRows = (marks: Mark[], test: StressSpan, runs: boolean): ChangeRow[] => {
  const row = { step: null, level: "normal", from: 0, to: 0 } as const;
  const begin = { ...row, at_ms: test.fromMs, short: t("Stress test"), reason: t("the test took {size}", { size: size(test.bytes) }) };
  const end = { ...row, at_ms: test.toMs, short: t("Stress test ended"), reason: `${t("the test freed {size}.", { size: size(test.bytes) })} ${stressReaction(marks, test)}` };
  return runs ? [begin] : [begin, end];
};

/** All rows in the order of time. A test that held memory at `nowMs` still runs. */
export const changeRows = (marks: Mark[], tests: StressSpan[], nowMs: number): ChangeRow[] => {
  const rows = tests.flatMap((test) => stressRows(marks, test, nowMs - test.toMs < 2000));
  return [...marks, ...rows].sort((a, b) => a.at_ms - b.at_ms);
};
