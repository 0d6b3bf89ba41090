// Picks the host. In the app this folds to Tauri alone: the replaying host is left out of a production bundle.
import type { Host } from "./host";
import { host as app } from "./tauri";

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const host: Host = replays ? (await import("./replay")).host : app;
