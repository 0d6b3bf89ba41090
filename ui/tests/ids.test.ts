// Ids are unique across all components.
import { expect, test } from "vitest";

const parts = import.meta.glob<string>("../src/**/*.svelte", { query: "?raw", import: "default", eager: true });

test("no two elements have the same id", () => {
  const ids = Object.values(parts).flatMap((part) => [...part.matchAll(/<(?!Field)\w[^<]*?\sid="([^"{}]+)"/g)].map(([, id]) => id));
  expect(ids).toContain("pause");
  expect(ids).toContain("symbol-pause");
  expect(ids.filter((id, place) => ids.indexOf(id) !== place)).toEqual([]);
});
