// What the menu of the charts asks of the program. It is loaded with the menu.
import { invoke } from "./tauri";

export interface ChartHost {
  /** Opens the system's dialog for a file. Returns the name of the saved PNG, or `null`. */
  saveChart(picture: ArrayBuffer): Promise<string | null>;
}

const app: ChartHost = {
  saveChart: (picture) => invoke("save_chart", picture),
};

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const chartHost: ChartHost = replays ? { saveChart: async () => "charts.png" } : app;
