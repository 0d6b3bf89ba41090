// Numbers as the window shows them.
import { expect, test } from "vitest";
import vectors from "../../crates/format/tests/vectors.json";
import { clock, count, duration, gigabytes, inUnit, loss, missing, percent, plural, rate, size } from "../src/format";

type Vectors = [number | null, string][];

test.each([
  ["bytes", vectors.bytes as Vectors, (value: number | null) => size(value!)],
  ["counts", vectors.counts as Vectors, count],
  ["durations", vectors.durations as Vectors, duration],
  ["fractions", vectors.fractions as Vectors, percent],
  ["targets", vectors.targets as Vectors, inUnit],
] as const)("%s are shown as in the terminal", (_, cases, format) => {
  expect(cases.length).toBeGreaterThan(5);
  expect(cases.map(([value]) => format(value))).toEqual(cases.map(([, text]) => text));
});

test.each([[0, "0:00"], [582_900, "9:42"], [3_600_000, "1:00:00"], [4_350_000, "1:12:30"]])(
  "%s ms on the run's clock are shown as %s", (ms, text) => expect(clock(ms)).toBe(text));

test("a gigabyte is 2^30 bytes, with one decimal", () => {
  expect(gigabytes(6.1 * 2 ** 30)).toBe("6.1");
  expect(size(2.6 * 2 ** 20)).toBe("2.6 MB");
  expect(size(24 * 2 ** 30)).toBe("24.0 GB");
});

test("a missing value is shown as a dash", () => {
  expect(missing).toBe("–");
  expect([count(null), percent(undefined), gigabytes(null), loss(Number.NaN), duration(Number.NaN)]).toEqual(Array(5).fill(missing));
});

test("counts, fractions and losses are formatted", () => {
  expect([count(1215), percent(0.934), loss(0.3456), loss(1234.5), rate(0.00032)]).toEqual(["1,215", "93.4 %", "0.35", "1235", "3.2e-4"]);
  expect([plural(1, "{n} note", "{n} notes"), plural(20, "{n} note", "{n} notes")]).toEqual(["1 note", "20 notes"]);
});
