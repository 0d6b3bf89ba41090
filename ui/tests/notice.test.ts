// A notice belongs to the view that the same drop opens.
import { expect, test, vi } from "vitest";

vi.stubGlobal("location", { hash: "#/" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("HTMLElement", class {});
let answer = (_: unknown[]) => {};
vi.mock("../src/host/selectHost", () => ({
  host: { runs: () => new Promise((resolve) => (answer = resolve)) },
}));

test("the notice about several dropped folders survives that the first is a run", async () => {
  const { openShow, session, showNotice } = await import("../src/appState.svelte");
  const { go, route } = await import("../src/route.svelte");
  openShow({ kind: "run", id: "half" });
  // The list of runs is still on its way.
  const shown = showNotice({ text: "Ebb opens one folder at a time", is_error: false });
  answer([{ id: "half", status: "stopped" }]);
  await shown;
  expect(route()).toEqual({ view: "training", id: "half" });
  expect(session.notice).toBe("Ebb opens one folder at a time");
  go("#/");
  expect(session.notice).toBeNull();
});

test("an action takes the notice away, and an error leaves it", async () => {
  const { attempt, session, showNotice } = await import("../src/appState.svelte");
  await showNotice({ text: "Ebb opens one folder at a time", is_error: false });
  session.error = "the disk is full";
  expect(session.notice).toBe("Ebb opens one folder at a time");
  await attempt(async () => {});
  expect(session.notice).toBeNull();
});

test("a failure is an error, and ends the notice about the attempt", async () => {
  const { session, showNotice } = await import("../src/appState.svelte");
  await showNotice({ text: "Importing birds.ebbrun", is_error: false });
  await showNotice({ text: "birds.ebbrun is damaged", is_error: true });
  expect([session.notice, session.error]).toEqual([null, "birds.ebbrun is damaged"]);
});
