// The charts as a table: one row per panel, and one row per series. Rust names the arrays of a pull
// in crates/runlog/src/chart_data.rs; a new array needs one row in SERIES here. Knows neither pixels
// nor uPlot.
import { count, loss, oneDecimal, percent, rate } from "../format";
import { translate, t, type Label } from "../strings/t";
import type { Figures, PullHeader, Started } from "../types";
import type { ChartOptions } from "./viewOptions";
import { fractionScale, lossScale, memoryScale, microScale, ownMemoryScale, type Scale } from "./ticks";

const GB = 2 ** 30;

export type PanelId = "memory" | "machine" | "micro" | "loss" | "metric" | "gradient" | "speed" | "wait" | "gpu" | "swap" | "thermal";

export interface PanelRow {
  id: PanelId;
  title: Label | ((header: PullHeader | null) => string);
  unit(header: PullHeader | null): string;
  /** Height relative to the other panels. */
  share: number;
  /** Top and ticks of the axis. */
  scale(highest: number, header: PullHeader, options: ChartOptions): Scale;
  /** The value that the axis must reach, for the highest value drawn; without it, that value. */
  top?(highest: number, header: PullHeader, options: ChartOptions): number;
  /** Label of a tick; without it, the number. */
  label?(tick: number): string;
  /** Draws the pressure levels as a strip with glyph and word above the plot. */
  levels?: true;
  /** Draws changes as a shape with a short text. */
  changes?: true;
  /** Has a logarithmic scale if the reader chose one. */
  log?: true;
  /** Shown only if the reader chose it; the name in the menu. */
  choice?: Label;
  /** Only for runs that have this array. */
  needs?: string;
}

const thermalNames: Label[] = ["Cool", "Warm", "Hot", "Too hot"];
/** Tokens in a sample of a language model or a compression, which is a window of them; 1 for other
 * tasks. */
export const tokensPerSample = (started: Pick<Started, "task" | "input_size"> | null | undefined) => (/^(language-model|token-compression)$/.test(started?.task ?? "") ? started!.input_size : 1);
/** How the speed of a run is given. */
export const speedUnit = (started: Parameters<typeof tokensPerSample>[0]) => (tokensPerSample(started) > 1 ? t("tokens/s") : t("samples/s"));
export const speed = (samplesPerSecond: number | null | undefined, started: Parameters<typeof tokensPerSample>[0]) => {
  const tokens = tokensPerSample(started);
  return tokens > 1 && typeof samplesPerSecond === "number" ? count(samplesPerSecond * tokens) : oneDecimal(samplesPerSecond);
};
/** The machine whose memory the arrays `machine.*` have. */
const shownMachine = (header: PullHeader | null) => header?.group?.ranks.find(({ member }) => member.rank === header.shown_rank)?.member;

/** A row of the cursor's box, or a name, as it is called for this run. */
export const labelFor = (label: Label, header: PullHeader) => {
  if (label === "Metric" && header.metric_name) return translate(header.metric_name);
  return label === "Samples/s" && tokensPerSample(header.started) > 1 ? t("Tokens/s") : t(label);
};
const FRACTIONS = ["accuracy", "kept", "preference accuracy"];
const isFraction = (header: PullHeader | null) => FRACTIONS.includes(header?.metric_name ?? "");

/** From the top down; the last panel shown has the time axis. */
export const PANELS: PanelRow[] = [
  {
    id: "memory", title: "Memory", unit: () => "GB", share: 48, levels: true,
    scale: (highest, _, { memory }) => (memory === "ebb" ? ownMemoryScale(highest) : memoryScale(highest)),
    top: (highest, header, { memory }) => (memory === "ebb" ? highest * 1.1 : Math.max((header.started?.total_bytes ?? 0) / GB, Math.ceil(highest))),
  },
  {
    id: "machine", unit: () => "GB", share: 22, needs: "machine.ebb",
    title: (header) => t("Memory of {host}, rank {n}", { host: shownMachine(header)?.host ?? "", n: count(header?.shown_rank) }),
    scale: (highest, _, { memory }) => (memory === "ebb" ? ownMemoryScale(highest) : memoryScale(highest)),
    top: (highest, header, { memory }) => (memory === "ebb" ? highest * 1.1 : Math.max((shownMachine(header)?.total_bytes ?? 0) / GB, Math.ceil(highest))),
  },
  { id: "micro", title: "Micro-batch", unit: () => t("samples"), share: 20, scale: microScale, changes: true },
  { id: "loss", title: "Loss", unit: (header) => (header?.started?.targets.length ? "" : t("cross-entropy")), share: 32, scale: lossScale, log: true },
  {
    id: "metric", title: (header) => translate(header?.metric_name ?? "metric").replace(/^./, (letter) => letter.toUpperCase()), unit: () => t("held out"), share: 18,
    scale: (highest, header) => (isFraction(header) ? fractionScale() : lossScale(highest)), choice: "Accuracy, or the task's metric",
  },
  { id: "speed", title: "Speed", unit: (header) => speedUnit(header?.started), share: 14, scale: lossScale, choice: "Samples per second" },
  { id: "gradient", title: "Gradient norm", unit: () => "", share: 14, scale: lossScale, choice: "Gradient norm" },
  { id: "wait", title: "Waiting for data", unit: () => t("ms per step"), share: 14, scale: lossScale, choice: "Time waiting for data" },
  { id: "gpu", title: "GPU time", unit: () => t("ms per command buffer"), share: 14, scale: lossScale, choice: "GPU time per command buffer", needs: "loss.command_buffer_ms" },
  { id: "swap", title: "Swap", unit: () => "GB", share: 14, scale: ownMemoryScale, choice: "Swap" },
  {
    id: "thermal", title: "Thermal state", unit: () => "", share: 12, scale: () => ({ top: 3.2, ticks: [0, 1, 2, 3] }), choice: "Thermal state",
    label: (tick) => (tick < 3 && thermalNames[tick] ? t(thermalNames[tick]).toLowerCase() : ""),
  },
];

/** The panels that a run can have, as one text that stays the same between pulls. */
export const possiblePanels = (header: PullHeader | null) => PANELS.flatMap(({ id, needs }) => (!needs || header?.arrays.some(({ name }) => name === needs) ? id : [])).join();

/** The panels shown, of those that are possible. */
export const panelsOf = (options: ChartOptions, possible: string) =>
  PANELS.filter(({ id, choice }) => possible.split(",").includes(id) && (!choice || options.panels.includes(id)));

/** How a series is drawn. Layers are stacked, the last row at the bottom. Diamonds have times of
 * their own. */
export type Drawing = "layer" | "line" | "thin" | "dash" | "dots" | "steps" | "diamonds";

export interface SeriesRow {
  panel: PanelId;
  /** Name at the right of the panel. */
  name: Label;
  /** Name of the pull's array: `GROUP.NAME`; its times are `GROUP.at`. Without one, the row is a
   * value and no curve. */
  array?: string;
  drawing?: Drawing;
  /** A token of tokens.css. */
  color: `series-${string}`;
  /** Units of the array per unit of the axis. */
  per?: number;
  format: (value: number | null | undefined, header?: PullHeader) => string;
  /** Follows the value in the cursor's box. */
  suffix?: string;
  /** The current value; without it, the last value of the array. */
  current?: (figures: Figures) => number | null;
  /** A layer whose upper edge is drawn. */
  edge?: true;
  /** A single spike of this series does not stretch the axis. */
  noisy?: true;
  /** Does not stretch the axis while Ebb's own memory is shown. */
  outside?: true;
  /** Stands on the memory of others, which is left out while Ebb's own memory is shown: their
   * arrays. */
  onOthers?: string[];
  /** Only in the view of the whole machine. */
  whole?: true;
  /** Left out while it has no value above 0. */
  optional?: true;
  /** The curve has a scale of its own, which ends just above its highest value. */
  ownScale?: true;
  /** The name belongs directly below the name of the row above. */
  below?: true;
  /** Has its value in the cursor's box even if its panel is not shown. */
  always?: true;
  /** Drawn only if the reader wants the learning rate. */
  rate?: true;
  /** Rows of the cursor's box that this value is added to. */
  cursor?: Label[];
  /** `data-value` of the name, for scripts. */
  hook?: string;
}

const inMemory = { panel: "memory", per: GB, format: oneDecimal, suffix: " GB" } as const;
const inLoss = { panel: "loss", format: loss } as const;
const ownGigabytes = (value: number | null | undefined) => (value !== null && value !== undefined && value < 0.95 ? loss(value) : oneDecimal(value));
const inMachine = { ...inMemory, panel: "machine" } as const;
const inEbb = { ...inMemory, format: ownGigabytes } as const;

export const SERIES: SeriesRow[] = [
  { ...inMemory, name: "Your limit", array: "memory.limit", drawing: "dots", color: "series-raw", cursor: ["Your limit"], whole: true, optional: true },
  { ...inMemory, name: "Budget line", array: "memory.budget", drawing: "dash", color: "series-budget", cursor: ["Budget line"], onOthers: ["memory.others", "memory.system"], outside: true },
  { ...inEbb, name: "Ebb cached", array: "memory.cached", drawing: "layer", color: "series-cached", cursor: ["In use", "Ebb", "cached"], optional: true },
  { ...inEbb, name: "Ebb activations", array: "memory.activations", drawing: "layer", color: "series-activations", cursor: ["In use", "Ebb", "activations"] },
  { ...inEbb, name: "Ebb state", array: "memory.state", drawing: "layer", color: "series-state", cursor: ["In use", "Ebb", "state"] },
  { ...inMemory, name: "Other apps", array: "memory.others", drawing: "layer", color: "series-others", edge: true, cursor: ["In use"], whole: true },
  { ...inMemory, name: "System", array: "memory.system", drawing: "layer", color: "series-system", edge: true, cursor: ["In use"], whole: true },
  { ...inMemory, name: "Swap", array: "memory.swap", drawing: "thin", color: "series-evaluation", cursor: ["Swap"], whole: true, optional: true },
  { ...inMachine, name: "Budget line", array: "machine.budget", drawing: "dash", color: "series-budget", cursor: ["Budget of the chosen machine"], onOthers: ["machine.others"], outside: true },
  { ...inMachine, name: "Ebb", array: "machine.ebb", drawing: "layer", color: "series-state", format: ownGigabytes, cursor: ["Ebb on the chosen machine"] },
  { ...inMachine, name: "System and apps", array: "machine.others", drawing: "layer", color: "series-others", edge: true, whole: true },
  {
    panel: "micro", name: "Micro-batch", array: "micro.value", drawing: "steps", color: "series-state", format: count,
    current: (figures) => figures.micro_batch, cursor: ["Micro-batch"],
  },
  { panel: "micro", name: "Per step", color: "series-state", format: count, current: (figures) => figures.micro_batches, below: true },
  {
    ...inLoss, name: "Evaluation", array: "evaluation.loss", drawing: "diamonds", color: "series-evaluation",
    current: (figures) => figures.held_out_loss, cursor: ["Loss, held out"], hook: "held-out-loss",
  },
  { ...inLoss, name: "Smoothed", array: "loss.smoothed", drawing: "line", color: "series-smoothed", cursor: ["Loss, smoothed"], hook: "loss" },
  {
    ...inLoss, name: "Raw", array: "loss.raw", drawing: "thin", color: "series-raw", current: (figures) => figures.loss, noisy: true, below: true,
    cursor: ["Loss"], hook: "raw-loss",
  },
  {
    ...inLoss, name: "Learning rate", array: "loss.learning_rate", drawing: "dash", color: "series-system", format: rate, ownScale: true, rate: true,
    cursor: ["Learning rate"],
  },
  { panel: "loss", name: "Step", array: "loss.step", color: "series-raw", format: count, cursor: ["Step"] },
  {
    panel: "metric", name: "Evaluation", array: "evaluation.metric", drawing: "line", color: "series-smoothed", cursor: ["Metric"],
    format: (value, header) => (header && isFraction(header) ? percent(value) : loss(value)),
  },
  { panel: "speed", name: "Samples/s", array: "loss.samples_per_second", drawing: "thin", color: "series-smoothed", format: (value, header) => (tokensPerSample(header?.started) > 1 ? count(value) : oneDecimal(value)), noisy: true, always: true, cursor: ["Samples/s"] },
  { panel: "gradient", name: "Norm", array: "loss.gradient_norm", drawing: "thin", color: "series-smoothed", format: loss, noisy: true, cursor: ["Gradient norm"] },
  { panel: "wait", name: "Waited", array: "loss.wait_ms", drawing: "thin", color: "series-smoothed", format: oneDecimal, suffix: " ms", noisy: true, cursor: ["Waited for data"] },
  { panel: "gpu", name: "Mean", array: "loss.command_buffer_ms", drawing: "thin", color: "series-smoothed", format: oneDecimal, suffix: " ms", noisy: true, cursor: ["GPU, per command buffer"] },
  { panel: "swap", name: "In use", array: "memory.swap", drawing: "line", color: "series-smoothed", per: GB, format: oneDecimal, suffix: " GB", cursor: ["Swap"] },
  {
    panel: "thermal", name: "State", array: "memory.thermal", drawing: "steps", color: "series-smoothed", cursor: ["Thermal state"],
    format: (value) => t(thermalNames[value ?? -1] ?? "unknown"),
  },
];

export const seriesOf = (panel: PanelId) => SERIES.filter((row) => row.panel === panel);

/** The array of a series' times. */
export const timesOf = (array: string) => `${array.split(".")[0]}.at`;

/** One value per panel. */
export const perPanel = <T>(make: (panel: PanelRow) => T, panels = PANELS) => Object.fromEntries(panels.map((panel) => [panel.id, make(panel)])) as Record<PanelId, T>;
