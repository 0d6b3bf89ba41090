// The charts as a table: one row per panel, and one row per series. Rust names the arrays of a pull
// in crates/runlog/src/window.rs; a new array needs one row in SERIES here. Knows neither pixels
// nor uPlot.
import { count, loss, oneDecimal, rate } from "../format";
import type { Figures, PullHeader } from "../types";
import { lossScale, memoryScale, microScale, type Scale } from "./ticks";

const GB = 2 ** 30;

export type PanelId = "memory" | "micro" | "loss";

export interface PanelRow {
  id: PanelId;
  title: string;
  unit(header: PullHeader | null): string;
  /** Share of the height that all plots have together. */
  share: number;
  /** Top and ticks of the axis. */
  scale(highest: number): Scale;
  /** The value that the axis must reach, for the highest value drawn; without it, that value. */
  top?(highest: number, header: PullHeader): number;
  /** Draws the pressure levels as a strip with glyph and word above the plot. */
  levels?: true;
  /** Draws changes as a shape with a short text. */
  changes?: true;
}

/** From the top down; the last panel has the time axis. */
export const PANELS: PanelRow[] = [
  {
    id: "memory", title: "Memory", unit: () => "GB", share: 0.48, scale: memoryScale, levels: true,
    top: (highest, header) => Math.max((header.started?.total_bytes ?? 0) / GB, Math.ceil(highest)),
  },
  { id: "micro", title: "Micro-batch", unit: () => "samples", share: 0.2, scale: microScale, changes: true },
  { id: "loss", title: "Loss", unit: (header) => (header?.started?.targets.length ? "" : "cross-entropy"), share: 0.32, scale: lossScale },
];

/** How a series is drawn. Layers are stacked, the last row at the bottom. Diamonds have times of
 * their own. */
export type Drawing = "layer" | "line" | "thin" | "dash" | "steps" | "diamonds";

export interface SeriesRow {
  panel: PanelId;
  /** Name at the right of the panel. */
  name: string;
  /** Name of the pull's array: `GROUP.NAME`; its times are `GROUP.at`. Without one, the row is a
   * value and no curve. */
  array?: string;
  drawing?: Drawing;
  /** A token of tokens.css. */
  color: `series-${string}`;
  /** Units of the array per unit of the axis. */
  per?: number;
  format: (value: number | null | undefined) => string;
  /** Follows the value in the cursor's box. */
  suffix?: string;
  /** The current value; without it, the last value of the array. */
  current?: (figures: Figures) => number | null;
  /** A layer whose upper edge is drawn. */
  edge?: true;
  /** A single spike of this series does not stretch the axis. */
  noisy?: true;
  /** The curve has a scale of its own, which ends just above its highest value. */
  ownScale?: true;
  /** The name belongs directly below the name of the row above. */
  below?: true;
  /** Rows of the cursor's box that this value is added to. */
  cursor?: string[];
  /** `data-value` of the name, for scripts. */
  hook?: string;
}

const inMemory = { panel: "memory", per: GB, format: oneDecimal, suffix: " GB" } as const;
const inLoss = { panel: "loss", format: loss } as const;

export const SERIES: SeriesRow[] = [
  { ...inMemory, name: "Budget line", array: "memory.budget", drawing: "dash", color: "series-budget", cursor: ["Budget line"] },
  { ...inMemory, name: "Ebb activations", array: "memory.activations", drawing: "layer", color: "series-activations", cursor: ["In use", "Ebb"] },
  { ...inMemory, name: "Ebb state", array: "memory.state", drawing: "layer", color: "series-state", cursor: ["In use", "Ebb"] },
  { ...inMemory, name: "Other apps", array: "memory.others", drawing: "layer", color: "series-others", edge: true, cursor: ["In use"] },
  { ...inMemory, name: "System", array: "memory.system", drawing: "layer", color: "series-system", edge: true, cursor: ["In use"] },
  {
    panel: "micro", name: "Micro-batch", array: "micro.value", drawing: "steps", color: "series-state", format: count,
    current: (figures) => figures.micro_batch, cursor: ["Micro-batch"],
  },
  { panel: "micro", name: "Per step", color: "series-state", format: count, current: (figures) => figures.micro_batches, below: true },
  {
    ...inLoss, name: "Evaluation", array: "evaluation.loss", drawing: "diamonds", color: "series-evaluation",
    current: (figures) => figures.held_out_loss, hook: "held-out-loss",
  },
  {
    ...inLoss, name: "Smoothed", array: "loss.smoothed", drawing: "line", color: "series-smoothed",
    current: (figures) => figures.smoothed_loss, cursor: ["Loss, smoothed"], hook: "loss",
  },
  { ...inLoss, name: "Raw", array: "loss.raw", drawing: "thin", color: "series-raw", current: (figures) => figures.loss, noisy: true, below: true, hook: "raw-loss" },
  {
    ...inLoss, name: "Learning rate", array: "loss.learning_rate", drawing: "dash", color: "series-system", format: rate, ownScale: true,
    cursor: ["Learning rate"],
  },
];

export const seriesOf = (panel: PanelId) => SERIES.filter((row) => row.panel === panel);

/** The array of a series' times. */
export const timesOf = (array: string) => `${array.split(".")[0]}.at`;

/** One value per panel. */
export const perPanel = <T>(make: (panel: PanelRow) => T) => Object.fromEntries(PANELS.map((panel) => [panel.id, make(panel)])) as Record<PanelId, T>;
