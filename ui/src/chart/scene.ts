// One pull, prepared for drawing: values in the units of the axes, the stacked layers, and the
// scales. Draws nothing.
import type { LevelSpan, Mark, PullHeader } from "../types";
import type { Pull } from "../unpackPull";
import { axisOf, type Axis } from "./axis";
import type { Colors } from "./canvasTheme";
import type { ChartOptions } from "./viewOptions";
import { PANELS, panelsOf, perPanel, possiblePanels, seriesOf, timesOf, tokensPerSample, type PanelId, type PanelRow, type SeriesRow } from "./series";
import type { TimeRange } from "./timeRange";
import { logScale, type Scale } from "./ticks";

/** Numbers; `null` is a gap in the curve. */
export type Values = Float64Array | (number | null)[];

/** One series, in the unit of its axis. A layer is drawn from `low` to `high`; other series at
 * `high`: their value, or its logarithm. */
export interface Drawn {
  at: Float64Array;
  values: Values;
  low: Values;
  high: Values;
}

/** Highest values since the reader last chose a time range: axes grow by themselves, and shrink
 * only on request. */
export type Tops = Record<PanelId, number>;

export const noTops = (): Tops => perPanel(() => 0);

/** An axis from `bottom` to `top`. */
export interface PanelScale extends Scale {
  bottom: number;
  log: boolean;
}

/** A stress test. */
export interface StressSpan extends TimeRange {
  bytes: number;
}

export interface Scene {
  range: TimeRange;
  axis: Axis;
  panels: PanelRow[];
  options: ChartOptions;
  header: PullHeader;
  colors: Colors;
  marks: Mark[];
  spans: LevelSpan[];
  stress: StressSpan[];
  /** The series that are shown, and those whose values are always in the cursor's box. */
  series: Map<SeriesRow, Drawn>;
  scales: Record<PanelId, PanelScale>;
}

/** The values of a group's arrays. */
type Arrays = (name: string) => Float64Array;

/** A value that is not a finite number leaves a gap. */
const withGaps = (values: Float64Array): Values =>
  values.every(Number.isFinite) ? values : Array.from(values, (value) => (Number.isFinite(value) ? value : null));

/** Inserts a gap into the steps where the run waited, so that no line bridges a pause. */
const withPauses = (pull: Pull): Arrays => {
  const at = pull.array("loss.at");
  const pauses = pull.header.marks.filter(({ to, from, at_ms }) => to === 0 && from > 0 && at_ms > (at[0] ?? Infinity) && at_ms < (at.at(-1) ?? 0));
  if (pauses.length === 0) return (name) => pull.array(name);
  const places = pauses.map(({ at_ms }) => at.findIndex((time) => time > at_ms));
  return (name) => {
    const values = pull.array(name);
    if (!name.startsWith("loss.")) return values;
    const parts: number[] = [];
    values.forEach((value, i) => {
      const pause = places.indexOf(i);
      if (pause >= 0) parts.push(name === "loss.at" ? pauses[pause]!.at_ms : Number.NaN);
      parts.push(value);
    });
    return Float64Array.from(parts);
  };
};

const isShown = (row: SeriesRow, values: Float64Array, { memory, learningRate }: ChartOptions) => {
  if ((row.whole && memory === "ebb") || (row.rate && !learningRate)) return false;
  return !row.optional || values.some((value) => value > 0);
};

const addPanel = (panel: PanelId, arrays: Arrays, header: PullHeader, options: ChartOptions, series: Scene["series"]) => {
  let below = new Float64Array(0);
  for (const row of seriesOf(panel).reverse()) {
    if (!row.array) continue;
    const at = arrays(timesOf(row.array));
    const per = panel === "speed" ? 1 / tokensPerSample(header.started) : (row.per ?? 1);
    let raw = arrays(row.array).map((value) => value / per);
    if (!isShown(row, raw, options)) continue;
    if (row.onOthers && options.memory === "ebb") {
      const others = row.onOthers.map(arrays);
      raw = raw.map((value, i) => value - others.reduce((sum, values) => sum + values[i]!, 0) / per);
    }
    const values = withGaps(raw);
    if (row.drawing !== "layer") {
      series.set(row, { at, values, low: values, high: values });
      continue;
    }
    const low = below.length === 0 ? new Float64Array(raw.length) : below;
    below = raw.map((value, i) => value + low[i]!);
    series.set(row, { at, values, low, high: below });
  }
};

const highest = (values: Values) => {
  let top = 0;
  for (const value of values) if (value !== null && value > top) top = value;
  return top;
};

const lowest = (values: Values) => {
  let bottom = Infinity;
  for (const value of values) if (value !== null && value > 0 && value < bottom) bottom = value;
  return bottom;
};

const mapped = (values: Values, change: (value: number) => number): Values => Array.from(values, (value) => (value === null ? null : change(value)));

/** Values on a scale of their own, in units of the axis: the highest is just below its top. */
const stretched = (values: Values, { bottom, top }: PanelScale): Values => {
  const factor = (top - bottom) / (1.1 * (highest(values) || 1));
  return mapped(values, (value) => bottom + value * factor);
};

const onAxis = (panel: PanelRow, options: ChartOptions, noisy: boolean) =>
  seriesOf(panel.id).filter((row) => row.drawing && !row.ownScale && (row.noisy ?? false) === noisy && !(row.outside && options.memory === "ebb"));

/** A single spike of a noisy series must not flatten the curves: it counts up to 1.5 times the
 * others. */
const panelTop = (panel: PanelRow, series: Scene["series"], header: PullHeader, options: ChartOptions) => {
  const top = (noisy: boolean) => Math.max(0, ...onAxis(panel, options, noisy).map((row) => highest(series.get(row)?.high ?? [])));
  const steady = top(false);
  const drawn = steady > 0 ? Math.max(steady, Math.min(top(true), steady * 1.5)) : top(true);
  return panel.top ? panel.top(drawn, header, options) : drawn;
};

const scaleOf = (panel: PanelRow, top: number, scene: Omit<Scene, "scales">): PanelScale => {
  if (panel.log && scene.options.log) {
    const rows = [...onAxis(panel, scene.options, false), ...onAxis(panel, scene.options, true)];
    const bottom = Math.min(...rows.map((row) => lowest(scene.series.get(row)?.values ?? [])));
    if (Number.isFinite(bottom)) return { ...logScale(bottom * 0.9, Math.max(top, bottom) * 1.1), log: true };
  }
  return { ...panel.scale(top, scene.header, scene.options), bottom: 0, log: false };
};

export const prepareScene = (pull: Pull, range: TimeRange, colors: Colors, tops: Tops, options: ChartOptions, stress: StressSpan[] = []): Scene => {
  const { header } = pull;
  const panels = panelsOf(options, possiblePanels(header));
  const series: Scene["series"] = new Map();
  const arrays = withPauses(pull);
  for (const { id } of PANELS) if (panels.some((panel) => panel.id === id) || seriesOf(id).some(({ always }) => always)) addPanel(id, arrays, header, options, series);
  for (const panel of panels) tops[panel.id] = Math.max(tops[panel.id], panelTop(panel, series, header, options));
  const axis = axisOf(pull, options, range);
  const scene = { range, axis, panels, options, header, colors, marks: header.marks, spans: header.spans, stress, series };
  const scales = perPanel((panel) => scaleOf(panel, tops[panel.id], scene), PANELS);
  for (const [row, drawn] of series) {
    const scale = scales[row.panel];
    if (row.ownScale) drawn.high = stretched(drawn.values, scale);
    else if (scale.log) drawn.high = mapped(drawn.values, (value) => Math.log10(Math.max(value, 1e-30)));
  }
  return { ...scene, scales };
};
