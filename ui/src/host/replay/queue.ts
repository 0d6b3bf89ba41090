// A queue of made-up runs: `?queue` lists them, and `?queue=held` holds them.
import type { QueueView } from "../../types";
import type { QueueHost } from "../queue";

const kind = new URLSearchParams(location.search).get("queue");
const image = "Image classification, ViT-Micro";

let queue: QueueView = {
  holds: kind === "held",
  runs: kind === null ? [] : [
    { id: "queued-1", name: "grocery shelves", what: image, problem: null },
    { id: "queued-2", name: "birds in the garden", what: image, problem: kind === "held" ? "/Volumes/Camera/birds in the garden was not found." : null },
    { id: "queued-3", name: "reviews.csv", what: "Text classification, Text-Mini", problem: null },
  ],
};

export const queued = () => queue.runs.length;
export const enqueue = (name: string, what: string) => {
  queue = { holds: false, runs: [...queue.runs, { id: `queued-${queue.runs.length + 1}`, name, what, problem: null }] };
};

export const queueHost: QueueHost = {
  queue: async () => queue,
  change: async (id, change) => {
    const runs = [...queue.runs];
    const at = runs.findIndex((run) => run.id === id);
    const [run] = runs.splice(at, 1);
    if (change === "earlier") runs.splice(Math.max(0, at - 1), 0, run!);
    queue = { ...queue, runs };
  },
  start: async () => {
    queue = { holds: false, runs: queue.runs.map((run) => ({ ...run, problem: null })) };
  },
};
