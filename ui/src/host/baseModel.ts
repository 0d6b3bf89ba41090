// What the choice of a base model asks of the program. It is loaded when the sheet opens.
import type { BaseModelsView, HubModelView, HubRequest, WeightsView } from "../types";
import { invoke } from "./tauri";

export interface BaseModelHost {
  /** The models on this machine that suit a task, and how far the look-up is. */
  models(task: string): Promise<BaseModelsView>;
  /** Opens the system's dialog for a GGUF file. `null` if it was cancelled. */
  chooseGguf(): Promise<WeightsView | null>;
  /** Asks a hub for a model. */
  lookUp(inspection: string, request: HubRequest): Promise<void>;
  /** Downloads the model that was looked up, or continues its download. */
  download(): Promise<void>;
  /** How far the look-up or the download is; `null` without one. */
  lookedUp(): Promise<HubModelView | null>;
  /** Ends the look-up or the download. */
  stop(): Promise<void>;
}

const app: BaseModelHost = {
  models: (task) => invoke("base_models", { task }),
  chooseGguf: () => invoke("choose_gguf"),
  lookUp: (inspection, request) => invoke("look_up_model", { inspection, request }),
  download: () => invoke("download_model"),
  lookedUp: () => invoke("looked_up_model"),
  stop: () => invoke("stop_model"),
};

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const baseModelHost: BaseModelHost = replays ? (await import("./replay/baseModel")).baseModelHost : app;
