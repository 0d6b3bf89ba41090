// The app's host: the only file that knows Tauri. Commands return views; the event `show` names a
// view to open.
import { invoke } from "@tauri-apps/api/core";
import { listen, TauriEvent } from "@tauri-apps/api/event";
import type { Show } from "../types";
import type { Host } from "./host";

const lastName = (path: string) => path.split("/").filter(Boolean).at(-1) ?? path;

/** For parts of the page that are loaded later: calls a command. */
export { invoke };

/** Calls `listener` with every event of this name. Returns a function that stops this. */
export const onEvent = <T>(name: string, listener: (payload: T) => void): (() => void) => {
  const stop = listen<T>(name, (event) => listener(event.payload));
  return () => void stop.then((unlisten) => unlisten());
};

export const host: Host = {
  welcome: () => invoke("welcome"),
  machine: (seen) => invoke("machine", { seen }),
  runs: () => invoke("runs"),
  runList: (seen) => invoke("run_list", { seen }),
  chooseFolder: () => invoke("choose_folder"),
  chooseWeights: () => invoke("choose_weights"),
  recentFolders: () => invoke("recent_folders"),
  openRecent: (id) => invoke("open_recent", { id }),
  forgetRecent: (id) => invoke("forget_recent", { id }),
  openSample: () => invoke("open_sample"),
  inspection: (id, seen) => invoke("inspection", { id, seen }),
  planWith: (inspection, weights, trains) => invoke("begin_with", { inspection, weights, trains }),
  estimate: (inspection, settings) => invoke("estimate", { inspection, settings }),
  train: (inspection, settings) => invoke("train", { inspection, settings }),
  enqueue: (inspection, settings) => invoke("enqueue", { inspection, settings }),
  enqueueResume: (run, epochs) => invoke("enqueue_resume", { run, epochs }),
  resume: (run, epochs) => invoke("resume", { run, epochs }),
  control: (run, request) => invoke("control", { run, request }),
  stopDeviceCheck: () => invoke("stop_device_check"),
  stopReading: (inspection) => invoke("stop_reading", { inspection }),
  stressTest: (request) => invoke("drill", { request }),
  pull: ({ smoothedSteps, rank, ...query }) => invoke("pull", { ...query, choices: { smoothedSteps, rank } }),
  reportError: (message) => invoke("report_error", { message }),
  epochSeconds: (inspection, settings, microBatch) => invoke("epoch_seconds", { inspection, settings, microBatch }),
  contextMenu: (on, run, enabled, at) => invoke("context_menu", { on, run, enabled, at }),
  editRun: (run, name, note, tags) => invoke("edit_run", { run, name, note, tags }),
  repeatRun: (run, changes) => invoke("repeat_run", { run, changes }),
  reveal: (show) => invoke("reveal", { show }),
  trashRun: (run) => invoke("trash_run", { run }),
  importRun: () => invoke("import_run"),
  enableActions: (enabled) => invoke("enable_actions", { enabled }),
  setLanguage: (choice) => invoke("set_language", { choice }),
  quit: () => invoke("quit"),
  closeWindow: () => invoke("close_window"),
  zoom: (factor) => invoke("zoom", { factor }),
  onAction: (listener) => void listen<{ id: string; run: string | null }>("action", ({ payload }) => listener(payload.id, payload.run)),
  onShow: (listener) => void listen<Show>("show", (event) => listener(event.payload)),
  onNotice: (listener) => void onEvent("notice", listener),
  onDrag: (listener) => {
    // Rust takes the path of what is dropped; the page only shows that it can be dropped here.
    void listen<{ paths: string[] }>(TauriEvent.DRAG_ENTER, ({ payload }) => listener({ name: lastName(payload.paths[0] ?? "") }));
    void listen(TauriEvent.DRAG_LEAVE, () => listener(null));
    void listen(TauriEvent.DRAG_DROP, () => listener(null));
  },
};
