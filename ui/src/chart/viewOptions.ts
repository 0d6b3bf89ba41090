// What the reader chose to see in the charts.
import type { PanelId } from "./series";

export interface ChartOptions {
  /** The whole machine, or Ebb's own memory on a scale of its own. */
  memory: "all" | "ebb";
  axis: "time" | "step" | "epoch";
  /** Whether the loss has a logarithmic scale. */
  log: boolean;
  /** Whether the learning rate is drawn in the panel of the loss. */
  learningRate: boolean;
  /** Position of the slider, 0 (every step) to 100 (a quarter of the run). */
  smoothing: number;
  /** Panels beyond those that are always there. */
  panels: PanelId[];
}

export const defaultOptions: ChartOptions = { memory: "all", axis: "time", log: false, learningRate: true, smoothing: 55, panels: [] };

/** Number of steps that the smoothed loss covers: a share of the run, so that a long run is as
 * readable as a short one. It changes in jumps, so that the curve does not tremble. */
export const smoothedSteps = (smoothing: number, steps: number): number => {
  const most = Math.max(2, steps / 4);
  return 2 ** (Math.round((smoothing / 100) * Math.log2(most) * 2) / 2);
};

/** Options of an earlier version, or damaged ones, are completed. */
export const parseOptions = (text: string | null): ChartOptions => {
  try {
    const read = JSON.parse(text ?? "{}") as Partial<ChartOptions>;
    return { ...defaultOptions, ...read, panels: Array.isArray(read.panels) ? read.panels : [] };
  } catch {
    return defaultOptions;
  }
};
