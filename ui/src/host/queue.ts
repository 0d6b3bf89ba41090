// What the queue of runs asks of the program. It is loaded with the queue.
import type { QueueChange, QueueView } from "../types";
import { invoke } from "./tauri";

export interface QueueHost {
  queue(): Promise<QueueView>;
  change(id: string, change: QueueChange): Promise<void>;
  /** Starts the queue after a stop or a restart. */
  start(): Promise<void>;
}

const app: QueueHost = {
  queue: () => invoke("queue"),
  change: (id, change) => invoke("change_queue", { id, change }),
  start: () => invoke("start_queue"),
};

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const queueHost: QueueHost = replays ? (await import("./replay/queue")).queueHost : app;
