// Where the folder of a run is. It is loaded when the pointer is over a row that can be dragged.
import { invoke } from "./tauri";

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

/** The path of a run's folder, for other apps. */
export const runFolderPath = (run: string): Promise<string> => (replays ? Promise.resolve(`/home/someone/.local/share/ebb/runs/${run}`) : invoke("run_location", { run }));
