// The interface between the page and the program. The page knows ids only: no path, no Tauri, no
// file.
import type { CommandError, DrillRequest, DrillView, EstimateView, InspectionView, MachineView, PlanSettings, PlanView, RepeatView, RunRequest, RunRow, Show, WeightsView, Welcome } from "../types";

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
}

/** A folder is dragged over the window: its name, empty if unknown. `null` when it left or was
 * dropped. */
export type Drag = { name: string } | null;

export interface Host {
  welcome(): Promise<Welcome>;
  machine(): Promise<MachineView>;
  runs(): Promise<RunRow[]>;
  /** Opens the system's folder dialog. `null` if it was cancelled. */
  chooseFolder(): Promise<Show | null>;
  /** Opens the system's dialog for a folder of pretrained weights. `null` if it was cancelled. */
  chooseWeights(): Promise<WeightsView | null>;
  /** Returns the id of the inspection. */
  openSample(): Promise<string>;
  /** `null` if nothing changed since version `seen`. */
  inspection(id: string, seen: number): Promise<InspectionView | null>;
  /** The plan that Ebb suggests for these pretrained weights. `trains` is the trainable part;
   * `null` is the suggested one. */
  planWith(inspection: string, weights: string, trains: string | null): Promise<PlanView>;
  /** Estimates the memory that these settings need. Takes about a second. */
  estimate(inspection: string, settings: PlanSettings): Promise<EstimateView>;
  /** Measures the time of an epoch, in seconds. `null` on a GPU, where it is not known yet. */
  epochSeconds(inspection: string, settings: PlanSettings, microBatch: number): Promise<number | null>;
  /** Returns the id of the run. */
  train(inspection: string, settings: PlanSettings): Promise<string>;
  resume(run: string): Promise<void>;
  control(run: string, request: RunRequest): Promise<void>;
  stressTest(request: DrillRequest): Promise<DrillView>;
  pull(query: PullQuery): Promise<ArrayBuffer>;
  reportError(message: string): Promise<void>;
  /** Shows the context menu of a run with the actions in `enabled`. A chosen one arrives at
   * `onAction`. */
  runMenu(run: string, enabled: string[]): Promise<void>;
  /** Saves the name and the note of a run. An empty name restores the dataset's. */
  editRun(run: string, name: string, note: string): Promise<void>;
  /** What a new plan takes over from a run. */
  repeatRun(run: string): Promise<RepeatView>;
  /** Shows a folder in the file manager. */
  reveal(show: Show): Promise<void>;
  trashRun(run: string): Promise<void>;
  /** Enables the items of the menu bar that can be performed now. */
  enableActions(enabled: string[]): Promise<void>;
  quit(): Promise<void>;
  closeWindow(): Promise<void>;
  /** Scales everything in the window. */
  zoom(factor: number): Promise<void>;
  /** An item of the menu bar or of a run's context menu was chosen. */
  onAction(listener: (id: string, run: string | null) => void): void;
  onShow(listener: (show: Show) => void): void;
  onDrag(listener: (drag: Drag) => void): void;
}

/** Converts anything thrown to an error with code and message. */
export const toCommandError = (thrown: unknown): CommandError => {
  if (typeof thrown === "object" && thrown !== null && "code" in thrown && "message" in thrown) return thrown as CommandError;
  return { code: "failed", message: thrown instanceof Error ? thrown.message : String(thrown) };
};
