// An idle window draws nothing.
import { expect, test } from "vitest";
import { looksLike } from "../src/shell/sameMachineReading";
import { machine } from "../src/host/replay/standInViews";

test("a reading that differs by less than is shown looks the same", () => {
  expect(looksLike(null, machine)).toBe(false);
  expect(looksLike(machine, { ...machine, own_bytes: machine.own_bytes + 1e6, pressure: 0.2 })).toBe(true);
  expect(looksLike(machine, { ...machine, others_bytes: machine.others_bytes + 2 ** 30 })).toBe(false);
  expect(looksLike(machine, { ...machine, level: "warning" })).toBe(false);
});
