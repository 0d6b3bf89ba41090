// What the page asks about a run whose data have moved. It is loaded with the line that shows it.
import { invoke } from "./tauri";

export interface LocateHost {
  /** Says that the data of a run have moved; `null` if they are there. */
  missingData(run: string): Promise<string | null>;
  /** Opens the system's dialog for the folder of a run. False if it was cancelled. */
  locateData(run: string): Promise<boolean>;
}

const app: LocateHost = {
  missingData: (run) => invoke("missing_data", { run }),
  locateData: (run) => invoke("locate_data", { run }),
};

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const locateHost: LocateHost = replays ? (await import("./replay/locateData")).locateHost : app;
