// What the memory limits of a running training ask of the program. It is loaded with them.
import type { LimitsView } from "../types";
import { invoke } from "./tauri";

export interface LimitsHost {
  limits(run: string): Promise<LimitsView>;
}

const app: LimitsHost = { limits: (run) => invoke("memory_limits", { run }) };

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const limitsHost: LimitsHost = replays ? (await import("./replay/limits")).limitsHost : app;
