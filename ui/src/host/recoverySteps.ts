// The recovery steps of a run that lacks memory. They are loaded when a run waits or has ended.
import type { RecoveryView } from "../types";
import { invoke } from "./tauri";

export interface RecoveryHost {
  /** Empty unless the run is suspended, or ended because memory was short. */
  options(run: string): Promise<RecoveryView[]>;
}

const app: RecoveryHost = { options: (run) => invoke("recovery_options", { run }) };

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const recoveryHost: RecoveryHost = replays ? (await import("./replay/recoverySteps")).recoveryHost : app;
