// The list of runs: search, order, dates.
import { expect, test } from "vitest";
import type { RunRow } from "../src/types";
import { comparable, dateOf, filtered, lineOf, search, sorted, tagsOf } from "../src/welcome/runList";

const row = (part: Partial<RunRow>): RunRow => ({
  id: "r", name: "groceries", what: "Image classification, ConvNet", status: "finished", line: "Finished after 570 steps", here: false, spark: [], result: null,
  seconds_left: null, can_resume: false, unix_ms: 0, started_unix_ms: 0, note: "", tags: [], epochs_done: 30, epochs: 30, ...part,
});

const rows = [
  row({ id: "a", started_unix_ms: 3, result: ["81.0 %", "accuracy"] }),
  row({ id: "b", name: "reviews", started_unix_ms: 2, status: "training", line: "Training, epoch 2 of 4" }),
  row({ id: "c", name: "plates", started_unix_ms: 1, status: "ended_early", note: "too dark #retry", result: ["93.4 %", "accuracy"] }),
];
const ids = (list: RunRow[]) => list.map(({ id }) => id).join("");

test("all words of a search must appear somewhere", () => {
  expect(ids(search(rows, ""))).toBe("abc");
  expect(ids(search(rows, "Image PLATES"))).toBe("c");
  expect(ids(search(rows, "#retry"))).toBe("c");
  expect(ids(search(rows, "ended early"))).toBe("c");
  expect(ids(search(rows, "groceries epoch"))).toBe("");
});

test("a run is compared with evaluated runs of the same task", () => {
  const other = row({ id: "d", what: "Language model, Text-Mini", result: ["2.13", "bits per byte"] });
  expect(ids(comparable([...rows, other], rows[0]!))).toBe("c");
  expect(comparable([...rows, other], other)).toEqual([]);
});

test("the list is filtered by state and tag, and tags are searched", () => {
  const tagged = [{ ...rows[0]!, tags: ["v2", "garden"] }, { ...rows[1]!, tags: ["garden"] }, rows[2]!];
  expect(tagsOf(tagged)).toEqual(["garden", "v2"]);
  expect(ids(filtered(tagged, "", ""))).toBe("abc");
  expect(ids(filtered(tagged, "", "garden"))).toBe("ab");
  expect(ids(filtered(tagged, "active", "garden"))).toBe("b");
  expect(ids(filtered(tagged, "failed", ""))).toBe("c");
  expect(ids(filtered(tagged, "stopped", ""))).toBe("");
  expect(ids(search(tagged, "#garden groceries"))).toBe("a");
});

test("running ones are on top, and results are ordered by value", () => {
  expect(ids(sorted(rows, "newest"))).toBe("bac");
  expect(ids(sorted(rows, "oldest"))).toBe("cba");
  expect(ids(sorted(rows, "name"))).toBe("acb");
  expect(ids(sorted(rows, "result"))).toBe("cab");
});

test("dates are as short as they can be", () => {
  const now = new Date(2026, 10, 23, 9, 0);
  expect(dateOf(new Date(2026, 10, 23, 0, 5).getTime(), now)).toBe("today 0:05");
  expect(dateOf(new Date(2026, 10, 22, 23, 59).getTime(), now)).toBe("yesterday 23:59");
  expect(dateOf(new Date(2026, 1, 3).getTime(), now)).toBe("3 February");
  expect(dateOf(new Date(2025, 10, 22).getTime(), now)).toBe("22 November 2025");
  const at = new Date(2026, 10, 23, 8, 30).getTime();
  expect(lineOf(row({ unix_ms: at }), now)).toBe("Finished after 570 steps, today 8:30");
  expect(lineOf(row({ status: "training", line: "Training, epoch 2 of 4", started_unix_ms: at }), now)).toBe("Training, epoch 2 of 4, started today 8:30");
});
