// The names at the right of each panel with the values at the right edge, so that no legend is
// needed.
import type { Band } from "../chart/layout";
import type { Drawn, Scene, Values } from "../chart/scene";
import { SWITCH } from "../chart/layout";
import { pushApart } from "../chart/overlap";
import { labelFor, seriesOf, type Drawing, type PanelId, type SeriesRow } from "../chart/series";
import { indexAt } from "./nearest";

export interface Name {
  name: string;
  value: string;
  /** Shape and color of the key beside the name. */
  key: Drawing | "none";
  color: string;
  /** Wanted position, in pixels from the top of the chart area. */
  y: number;
  /** For scripts that read the value. */
  hook?: string;
}

/** The value at the right edge of the range, which is now while the charts follow the run. */
const atEdge = (scene: Scene, drawn: Drawn | undefined, values: Values | undefined) => {
  if (!drawn || !values) return null;
  return values[indexAt(drawn.at, scene.range.toMs)] ?? null;
};

/** A layer is named at its middle, other series at their value on the axis. */
const height = (row: SeriesRow, scene: Scene, drawn: Drawn | undefined) => {
  const high = atEdge(scene, drawn, drawn?.high) ?? 0;
  return row.drawing === "layer" ? ((atEdge(scene, drawn, drawn?.low) ?? 0) + high) / 2 : high;
};

const valueOf = (row: SeriesRow, scene: Scene, following: boolean) => {
  if (following && row.current) return row.current(scene.header.figures);
  if (row.array) {
    const drawn = scene.series.get(row);
    return atEdge(scene, drawn, drawn?.values);
  }
  // The only row without an array: micro-batches per step.
  const sizes = seriesOf(row.panel).map((other) => scene.series.get(other)).find((drawn) => drawn);
  const size = atEdge(scene, sizes, sizes?.values);
  return size ? Math.ceil((scene.header.started?.effective_batch ?? 0) / size) : null;
};

/** `following`: the right edge is the run's clock, so that figures newer than the arrays count. */
export const namesOf = (panel: PanelId, scene: Scene, band: Band, following: boolean): Name[] => {
  const { bottom, top } = scene.scales[panel];
  let y = band.top;
  const shown = seriesOf(panel).filter((row) => (row.drawing ? scene.series.has(row) : !row.array));
  return shown.map((row) => {
    const drawn = scene.series.get(row);
    const value = valueOf(row, scene, following);
    const key = row.drawing ?? "none";
    const share = (height(row, scene, drawn) - bottom) / (top - bottom);
    if (!row.below) y = band.top + band.height * (1 - Math.min(Math.max(share, 0), 1));
    return { name: labelFor(row.name, scene.header), value: row.format(value, scene.header), key, color: row.color, y, hook: row.hook };
  });
};

/** Height of a name. */
const LINE = 17;

/** Positions of the middles of names: a line apart, or closer in a low panel; inside the panel, and
 * below the switch of the memory shown, which is above the first panel. */
export const placesOf = (names: Pick<Name, "y">[], { top, height }: Pick<Band, "top" | "height">) => {
  const [ceiling, floor] = [Math.max(top + 4, SWITCH + 10), top + height - 8];
  return pushApart(names.map(({ y }) => y), Math.min(LINE, (floor - ceiling) / Math.max(1, names.length - 1)), ceiling, floor);
};
