// A stress test in the list of changes, and what is said about it at its end.
import { expect, test } from "vitest";
import { changeRows } from "../src/training/changeRows";
import { stressReaction } from "../src/training/stressReaction";
import type { Mark } from "../src/types";

const GB = 2 ** 30;
const mark = (at_ms: number, from: number, to: number) => ({ at_ms, step: 7, level: "warning", from, to, short: `Now ${to}`, reason: "another app took 4.0 GB" }) as Mark;
const stress = { fromMs: 10_000, toMs: 30_000, bytes: 4 * GB };

test("the end of a stress test says what the training did meanwhile", () => {
  const marks = [mark(5_000, 32, 16), mark(12_000, 16, 8), mark(40_000, 8, 16)];
  expect(stressReaction(marks, stress)).toBe("Ebb reduced the micro-batch from 16 to 8, and increased it again 10 s after the test. This does not change the result of the training.");
  expect(stressReaction(marks.slice(0, 2), stress)).toBe("Ebb reduced the micro-batch from 16 to 8. This does not change the result of the training.");
  expect(stressReaction([mark(30_400, 16, 8)], stress)).toBe("Ebb reduced the micro-batch from 16 to 8. This does not change the result of the training.");
  expect(stressReaction([mark(12_000, 16, 0)], stress)).toBe("Ebb waited for memory. This does not change the result of the training.");
  expect(stressReaction([mark(5_000, 32, 16), mark(40_000, 8, 4)], stress)).toBe("Ebb had enough memory and did not reduce the micro-batch.");
});

test("the list of changes has begin and end of a stress test in the order of time", () => {
  const marks = [mark(5_000, 32, 16), mark(12_000, 16, 8), mark(40_000, 8, 16)];
  const rows = changeRows(marks, [stress], 50_000);
  expect(rows.map(({ at_ms, step, short }) => [at_ms, step, short])).toEqual([
    [5_000, 7, "Now 16"], [10_000, null, "Stress test"], [12_000, 7, "Now 8"], [30_000, null, "Stress test ended"], [40_000, 7, "Now 16"],
  ]);
  expect(rows[1]!.reason).toBe("the test took 4.0 GB");
  expect(rows[3]!.reason).toBe("the test freed 4.0 GB. Ebb reduced the micro-batch from 16 to 8, and increased it again 10 s after the test. This does not change the result of the training.");
});

test("a running stress test has not ended", () => {
  expect(changeRows([], [stress], 30_500).map(({ short }) => short)).toEqual(["Stress test"]);
  expect(changeRows([mark(5_000, 32, 16)], [], 30_500)).toHaveLength(1);
});
