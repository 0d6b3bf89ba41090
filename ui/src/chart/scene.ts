// One pull, prepared for drawing: values in the units of the axes, the stacked layers, and the
// scales. Draws nothing.
import type { LevelSpan, Mark, PullHeader } from "../types";
import type { Pull } from "../wire";
import type { Colors } from "./colors";
import { PANELS, perPanel, seriesOf, timesOf, type PanelId, type PanelRow, type SeriesRow } from "./series";
import type { TimeRange } from "./span";
import type { Scale } from "./ticks";

/** Numbers; `null` is a gap in the curve. */
export type Values = Float64Array | (number | null)[];

/** One series, in the unit of its axis. A layer is drawn from `low` to `high`; other series at
 * `high`, their value. */
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

export interface Scene {
  range: TimeRange;
  colors: Colors;
  marks: Mark[];
  spans: LevelSpan[];
  series: Map<SeriesRow, Drawn>;
  scales: Record<PanelId, Scale>;
}

/** A value that is not a finite number leaves a gap. */
const withGaps = (values: Float64Array): Values =>
  values.every(Number.isFinite) ? values : Array.from(values, (value) => (Number.isFinite(value) ? value : null));

const addPanel = (panel: PanelId, pull: Pull, series: Scene["series"]) => {
  let below = new Float64Array(0);
  for (const row of seriesOf(panel).reverse()) {
    if (!row.array) continue;
    const at = pull.array(timesOf(row.array));
    const raw = pull.array(row.array).map((value) => value / (row.per ?? 1));
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

/** Values on a scale of their own, in units of the axis: the highest is just below its top. */
const stretched = (values: Values, top: number): Values => {
  const factor = top / (1.1 * (highest(values) || 1));
  return Array.from(values, (value) => (value === null ? null : value * factor));
};

/** A single spike of a noisy series must not flatten the curves: it counts up to 1.5 times the
 * others. */
const panelTop = (panel: PanelRow, series: Scene["series"], header: PullHeader) => {
  const top = (noisy: boolean) =>
    Math.max(0, ...seriesOf(panel.id).filter((row) => !row.ownScale && (row.noisy ?? false) === noisy).map((row) => highest(series.get(row)?.high ?? [])));
  const steady = top(false);
  const drawn = Math.max(steady, Math.min(top(true), steady * 1.5));
  return panel.top ? panel.top(drawn, header) : drawn;
};

export const prepareScene = (pull: Pull, range: TimeRange, colors: Colors, tops: Tops): Scene => {
  const series: Scene["series"] = new Map();
  for (const panel of PANELS) addPanel(panel.id, pull, series);
  for (const panel of PANELS) tops[panel.id] = Math.max(tops[panel.id], panelTop(panel, series, pull.header));
  const scales = perPanel((panel) => panel.scale(tops[panel.id]));
  for (const [row, drawn] of series) if (row.ownScale) drawn.high = stretched(drawn.values, scales[row.panel].top);
  return { range, colors, marks: pull.header.marks, spans: pull.header.spans, series, scales };
};
