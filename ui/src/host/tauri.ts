// The app's host: the only file that knows Tauri. Commands answer with views; one rare event says what to show.
import { invoke } from "@tauri-apps/api/core";
import { listen, TauriEvent } from "@tauri-apps/api/event";
import type { Show } from "../types";
import type { Host } from "./host";

const lastName = (path: string) => path.split("/").filter(Boolean).at(-1) ?? path;

export const host: Host = {
  welcome: () => invoke("welcome"),
  machine: () => invoke("machine"),
  runs: () => invoke("runs"),
  chooseFolder: () => invoke("choose_folder"),
  chooseWeights: () => invoke("choose_weights"),
  openSample: () => invoke("open_sample"),
  inspection: (id, seen) => invoke("inspection", { id, seen }),
  beginWith: (inspection, weights, trains) => invoke("begin_with", { inspection, weights, trains }),
  forecast: (inspection, settings) => invoke("forecast", { inspection, settings }),
  train: (inspection, settings) => invoke("train", { inspection, settings }),
  resume: (run) => invoke("resume", { run }),
  control: (run, request) => invoke("control", { run, request }),
  drill: (request) => invoke("drill", { request }),
  pull: (query) => invoke("pull", { ...query }),
  reportError: (message) => invoke("report_error", { message }),
  onShow: (listener) => void listen<Show>("show", (event) => listener(event.payload)),
  onDrag: (listener) => {
    // The path is taken by Rust; the page only says that it may be let go here.
    void listen<{ paths: string[] }>(TauriEvent.DRAG_ENTER, ({ payload }) => listener({ name: lastName(payload.paths[0] ?? "") }));
    void listen(TauriEvent.DRAG_LEAVE, () => listener(null));
    void listen(TauriEvent.DRAG_DROP, () => listener(null));
  },
};
