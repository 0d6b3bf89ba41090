// The interface between the page and the program. The page knows ids only: no path, no Tauri, no
// file.
import { translate } from "../strings/t";
import type { CommandError, DrillRequest, DrillView, EstimateView, ImportedView, InspectionView, Language, MachineView, NoticeView, PlanSettings, PlanView, RecentView, RepeatView, RunList, RunRequest, RunRow, Show, WeightsView, Welcome } from "../types";

/** A time range of a run, for charts of `columns` pixel columns. `seen` is the version already
 * drawn, or 0. */
export interface PullQuery {
  run: string;
  fromMs: number;
  toMs: number;
  columns: number;
  seen: number;
  /** Steps that the smoothed loss covers. */
  smoothedSteps: number;
  /** The rank of a group whose memory is shown; `null` is the first other than 0. */
  rank: number | null;
}

/** A setting of a plan, and its value as text. */
export type SettingChange = [string, string];

/** A folder is dragged over the window: its name, empty if unknown. `null` when it left or was
 * dropped. */
export type Drag = { name: string } | null;

/** A place of the page in pixels from its upper left corner. */
export interface MenuPosition {
  x: number;
  y: number;
}

export interface Host {
  welcome(): Promise<Welcome>;
  /** As soon as it looks different from version `seen`; null after a while without a change. */
  machine(seen: number): Promise<MachineView | null>;
  runs(): Promise<RunRow[]>;
  /** As soon as the list differs from version `seen`; null after a while without a change. */
  runList(seen: number): Promise<RunList | null>;
  /** Opens the system's folder dialog. `null` if it was cancelled. */
  chooseFolder(): Promise<Show | null>;
  /** Opens the system's dialog for a folder of pretrained weights. `null` if it was cancelled. */
  chooseWeights(): Promise<WeightsView | null>;
  /** The folders that were opened last, newest first. */
  recentFolders(): Promise<RecentView[]>;
  openRecent(id: string): Promise<Show>;
  /** Removes a folder from the list; `null` removes all. */
  forgetRecent(id: string | null): Promise<void>;
  /** Returns the id of the inspection. */
  openSample(): Promise<string>;
  /** As soon as it is newer than version `seen`; null after a while without a change. */
  inspection(id: string, seen: number): Promise<InspectionView | null>;
  /** The plan that Ebb suggests for these pretrained weights. `trains` is the trainable part;
   * `null` is the suggested one. */
  planWith(inspection: string, weights: string, trains: string | null): Promise<PlanView>;
  /** Estimates the memory that these settings need. Takes about a second. */
  estimate(inspection: string, settings: PlanSettings): Promise<EstimateView>;
  /** Measures the time of an epoch, in seconds. On a GPU it is the time of an earlier run; `null` without one. */
  epochSeconds(inspection: string, settings: PlanSettings, microBatch: number): Promise<number | null>;
  /** Returns the id of the run. */
  train(inspection: string, settings: PlanSettings): Promise<string>;
  /** Adds a plan to the queue. It trains after the running training. */
  enqueue(inspection: string, settings: PlanSettings): Promise<void>;
  /** Adds an ended run to the queue. It goes on after the running training. */
  enqueueResume(run: string, epochs?: number): Promise<void>;
  /** With `epochs`, the run ends after this many in all. */
  resume(run: string, epochs?: number): Promise<void>;
  control(run: string, request: RunRequest): Promise<void>;
  /** Stops the check of the GPU that no run waits for. */
  stopDeviceCheck(): Promise<void>;
  /** Ends the reading of a folder. */
  stopReading(inspection: string): Promise<void>;
  stressTest(request: DrillRequest): Promise<DrillView>;
  pull(query: PullQuery): Promise<ArrayBuffer>;
  reportError(message: string): Promise<void>;
  /** Shows the context menu of a run or of another part of the page, with the actions in
   * `enabled`, at a place of the page or at the pointer. A chosen one arrives at `onAction`. */
  contextMenu(on: string, run: string | null, enabled: string[], at: MenuPosition | null): Promise<void>;
  /** Saves the name, the note and the tags of a run. An empty name restores the dataset's. */
  editRun(run: string, name: string, note: string, tags: string[]): Promise<void>;
  /** What a new plan takes over from a run. */
  repeatRun(run: string, changes?: SettingChange[]): Promise<RepeatView>;
  /** Shows a folder in the file manager. */
  reveal(show: Show): Promise<void>;
  trashRun(run: string): Promise<void>;
  /** Opens the system's dialog for an exported run. `null` if it was cancelled. */
  importRun(): Promise<ImportedView | null>;
  /** Enables the items of the menu bar that can be performed now. */
  enableActions(enabled: string[]): Promise<void>;
  /** Remembers the language of the window; `null` follows the system. It is shown after a reload. */
  setLanguage(choice: Language | null): Promise<void>;
  quit(): Promise<void>;
  closeWindow(): Promise<void>;
  /** Scales everything in the window. */
  zoom(factor: number): Promise<void>;
  /** An item of the menu bar or of a context menu was chosen. */
  onAction(listener: (id: string, run: string | null) => void): void;
  onShow(listener: (show: Show) => void): void;
  onDrag(listener: (drag: Drag) => void): void;
  /** A sentence to show, for example about folders that were dropped but not opened. */
  onNotice(listener: (notice: NoticeView) => void): void;
}

/** Converts anything thrown to an error with code and message. */
export const toCommandError = (thrown: unknown): CommandError => {
  if (typeof thrown === "object" && thrown !== null && "code" in thrown && "message" in thrown) {
    const { code, message } = thrown as CommandError;
    return { code, message: translate(message) };
  }
  return { code: "failed", message: thrown instanceof Error ? thrown.message : String(thrown) };
};
