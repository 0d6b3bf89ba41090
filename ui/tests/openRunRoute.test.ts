// A run opens at its results once it has finished, or was stopped with a checkpoint, also from its
// context menu.
import { expect, test, vi } from "vitest";

vi.stubGlobal("location", { hash: "#/" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("HTMLElement", class {});
vi.mock("../src/host/selectHost", () => ({
  host: { runs: async () => [
    { id: "done", status: "finished", can_resume: false }, { id: "half", status: "stopped", can_resume: true }, { id: "begun", status: "stopped", can_resume: false },
    { id: "broken", status: "failed", can_resume: true },
  ] },
}));

test.each([["done", "results"], ["half", "results"], ["begun", "training"], ["broken", "training"]])("Open in the context menu of %s leads to its %s", async (id, view) => {
  const { perform } = await import("../src/actions/perform.svelte");
  const { route } = await import("../src/route.svelte");
  perform("open-run", id);
  await vi.waitFor(() => expect(route()).toEqual({ view, id }));
});
