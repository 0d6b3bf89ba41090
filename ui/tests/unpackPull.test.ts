// The bytes of a pull are unpacked as they were packed.
import { expect, test } from "vitest";
import { pack, unpack } from "../src/unpackPull";
import type { PullHeader } from "../src/types";

test.each(["", "x", "é, three bytes more", "a longer message"])("a pull with the message '%s' is unchanged by packing", (message) => {
  const header = { version: 7, status_line: { message } } as Omit<PullHeader, "arrays">;
  const pull = unpack(pack(header, { "loss.at": [1, 2, 3], "loss.raw": [0.5, Number.NaN, 0.25], empty: [] }));
  expect(pull.header.version).toBe(7);
  expect(pull.header.status_line.message).toBe(message);
  expect([...pull.array("loss.raw")]).toEqual([0.5, Number.NaN, 0.25]);
  expect(pull.array("loss.at")[2]).toBe(3);
  expect(pull.array("empty")).toHaveLength(0);
  expect(pull.array("unknown")).toHaveLength(0);
});
