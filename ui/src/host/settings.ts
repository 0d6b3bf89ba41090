// What the sheet of all settings asks of the program. It is apart from the other requests, so that
// it is loaded with the sheet.
import type { PlanSettings, SettingValues } from "../types";
import { invoke } from "./tauri";

/** Settings as typed on the command line, by key. */
export type Typed = { [key in string]: string };

export interface SettingsHost {
  /** What Ebb chooses where a plan sets nothing, and what of the folder is used. */
  values(inspection: string, settings: PlanSettings): Promise<SettingValues>;
  /** Of the other settings of a plan, those that differ from what Ebb chooses. */
  changed(inspection: string, settings: PlanSettings): Promise<Typed>;
  /** What is wrong with the text of each setting. */
  check(typed: Typed): Promise<Typed>;
  /** Sets or, if the text is empty, resets a setting that changes how the folder is read. */
  setData(inspection: string, key: string, text: string): Promise<void>;
}

const app: SettingsHost = {
  values: (inspection, settings) => invoke("setting_values", { inspection, settings }),
  changed: (inspection, settings) => invoke("changed_settings", { inspection, settings }),
  check: (typed) => invoke("check_settings", { typed }),
  setData: (inspection, key, text) => invoke("set_data_setting", { inspection, key, text }),
};

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const settingsHost: SettingsHost = replays ? (await import("./replay/settings")).settingsHost : app;
