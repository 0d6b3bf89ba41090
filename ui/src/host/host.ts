// What the window asks of the world outside the page. It knows ids only: no path, no Tauri, no file.
import type { CommandError, DrillRequest, DrillView, ForecastView, InspectionView, MachineView, PlanSettings, PlanView, RunRequest, RunRow, Show, WeightsView, Welcome } from "../types";

/** A window of a run's life and how many pixel columns it is drawn on. `seen` is the version already drawn, or 0. */
export interface PullQuery {
  run: string;
  fromMs: number;
  toMs: number;
  columns: number;
  seen: number;
}

/** A folder hangs over the window: its name where known; `null` when it left or was dropped. */
export type Drag = { name: string } | null;

export interface Host {
  welcome(): Promise<Welcome>;
  machine(): Promise<MachineView>;
  runs(): Promise<RunRow[]>;
  /** The system's folder dialog. `null` when it was cancelled. */
  chooseFolder(): Promise<Show | null>;
  /** The same for a folder of published weights. */
  chooseWeights(): Promise<WeightsView | null>;
  openSample(): Promise<string>;
  /** `null` when nothing changed since version `seen`. */
  inspection(id: string, seen: number): Promise<InspectionView | null>;
  /** What Ebb suggests where training begins with these weights; `trains` says what of them trains. */
  beginWith(inspection: string, weights: string, trains: string | null): Promise<PlanView>;
  /** What these settings will need; takes about a second. */
  forecast(inspection: string, settings: PlanSettings): Promise<ForecastView>;
  train(inspection: string, settings: PlanSettings): Promise<string>;
  resume(run: string): Promise<void>;
  control(run: string, request: RunRequest): Promise<void>;
  drill(request: DrillRequest): Promise<DrillView>;
  pull(query: PullQuery): Promise<ArrayBuffer>;
  reportError(message: string): Promise<void>;
  onShow(listener: (show: Show) => void): void;
  onDrag(listener: (drag: Drag) => void): void;
}

/** The refusal inside whatever a call threw. */
export const refusal = (thrown: unknown): CommandError => {
  if (typeof thrown === "object" && thrown !== null && "code" in thrown && "message" in thrown) return thrown as CommandError;
  return { code: "failed", message: thrown instanceof Error ? thrown.message : String(thrown) };
};
