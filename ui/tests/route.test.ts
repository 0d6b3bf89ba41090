// Another view clears what belongs to the one before, the same view does not.
import { beforeEach, expect, test, vi } from "vitest";

let changed = () => {};
beforeEach(() => {
  vi.resetModules();
  vi.stubGlobal("location", { hash: "#/inspection/a" });
  vi.stubGlobal("addEventListener", (_: string, listener: () => void) => (changed = listener));
});

test("the last view is left once, by code or by a link", async () => {
  const { go, onLeave, route } = await import("../src/route.svelte");
  let left = 0;
  onLeave(() => (left += 1));
  go("#/inspection/a");
  expect(left).toBe(0);
  go("#/run/a");
  changed(); // the event of the same change arrives later
  expect([left, route()]).toEqual([1, { view: "training", id: "a" }]);
  location.hash = "#/";
  changed();
  expect([left, route().view]).toEqual([2, "welcome"]);
});
