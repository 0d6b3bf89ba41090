// The current view. It is in the hash of the address, so that a reload returns to it.
import type { Show } from "./types";

export type Route = { view: "welcome" } | { view: "plan"; id: string } | { view: "training"; id: string } | { view: "results"; id: string };

export const parse = (hash: string): Route => {
  const [, kind, id] = hash.split("/");
  if (kind === "inspection" && id) return { view: "plan", id: decodeURIComponent(id) };
  if (kind === "run" && id) return { view: "training", id: decodeURIComponent(id) };
  if (kind === "results" && id) return { view: "results", id: decodeURIComponent(id) };
  return { view: "welcome" };
};

export const inspectionHash = (id: string) => `#/inspection/${encodeURIComponent(id)}`;
export const runHash = (id: string) => `#/run/${encodeURIComponent(id)}`;
export const resultsHash = (id: string) => `#/results/${encodeURIComponent(id)}`;
export const showHash = (show: Show) => (show.kind === "run" ? runHash(show.id) : inspectionHash(show.id));

let current = $state.raw<Route>(parse(location.hash));
/** Is called when another view opens. */
let leave = () => {};
export const onLeave = (listener: () => void) => (leave = listener);
const show = (hash: string) => {
  const next = parse(hash);
  if (JSON.stringify(next) === JSON.stringify(current)) return;
  leave();
  current = next;
};
addEventListener("hashchange", () => show(location.hash));

export const route = () => current;
export const go = (hash: string) => {
  location.hash = hash;
  show(hash);
};
