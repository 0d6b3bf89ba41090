// Selects the host. A production bundle contains only the Tauri host.
import type { Host } from "./host";
import { host as app } from "./tauri";

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const host: Host = replays ? (await import("./replay")).host : app;
