// The time range of a run is remembered, for the newest 50 runs.
import { expect, test } from "vitest";
import { savedSpan, saveSpan } from "../src/chart/savedSpans";
import { wholeRun, type Span } from "../src/chart/timeRange";

const store = (text: string | null = null) => ({ getItem: () => text, setItem: (_: string, value: string) => void (text = value) });

test("a range is remembered as it was, also the whole run", () => {
  const saved = store();
  const chosen: Span[] = [{ follow: true, lengthMs: 120_000 }, { follow: true, lengthMs: wholeRun }, { follow: false, fromMs: 5000, toMs: 9000 }];
  chosen.forEach((span, i) => saveSpan(`run-${i}`, span, saved));
  expect(chosen.map((_, i) => savedSpan(`run-${i}`, saved))).toEqual(chosen);
  expect(savedSpan("another", saved)).toBeUndefined();
});

test("only the newest 50 runs are kept", () => {
  const saved = store();
  for (let i = 0; i < 50; i++) saveSpan(`run-${i}`, { follow: true, lengthMs: i }, saved);
  saveSpan("run-0", { follow: true, lengthMs: 7 }, saved);
  saveSpan("run-50", { follow: true, lengthMs: 50 }, saved);
  expect(savedSpan("run-0", saved)).toEqual({ follow: true, lengthMs: 7 });
  expect([savedSpan("run-1", saved), savedSpan("run-2", saved)]).toEqual([undefined, { follow: true, lengthMs: 2 }]);
});

test("storage that is damaged or switched off is as if nothing was chosen", () => {
  expect(savedSpan("a", store("{"))).toBeUndefined();
  const off = { getItem: () => { throw new Error("off"); }, setItem: () => { throw new Error("off"); } };
  saveSpan("a", { follow: true, lengthMs: 1 }, off);
  expect(savedSpan("a", off)).toBeUndefined();
});
