// A run opens at its results once it has finished, also from its context menu.
import { expect, test, vi } from "vitest";

vi.stubGlobal("location", { hash: "#/" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("HTMLElement", class {});
vi.mock("../src/host/selectHost", () => ({
  host: { runs: async () => [{ id: "done", status: "finished" }, { id: "half", status: "stopped" }] },
}));

test("Open in the context menu of a run leads to its results once it has finished", async () => {
  const { perform } = await import("../src/actions/perform.svelte");
  const { route } = await import("../src/route.svelte");
  perform("open-run", "done");
  await vi.waitFor(() => expect(route()).toEqual({ view: "results", id: "done" }));
  perform("open-run", "half");
  await vi.waitFor(() => expect(route()).toEqual({ view: "training", id: "half" }));
});
