// The names at the right of each panel with their current values, so that no legend is needed.
import type { Band } from "../chart/layout";
import type { Drawn, Scene, Values } from "../chart/scene";
import { seriesOf, type Drawing, type PanelId, type SeriesRow } from "../chart/series";
import type { PullHeader } from "../types";

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

const last = (values: Values | undefined) => values?.at(-1) ?? null;

/** A layer is named at its middle, other series at their value on the axis. */
const height = (row: SeriesRow, drawn: Drawn | undefined, value: number | null) => {
  const high = last(drawn?.high) ?? 0;
  if (row.drawing === "layer") return ((last(drawn?.low) ?? 0) + high) / 2;
  return row.ownScale ? high : (value ?? 0);
};

export const namesOf = (panel: PanelId, scene: Scene, header: PullHeader, band: Band): Name[] => {
  const { top } = scene.scales[panel];
  let y = band.top;
  return seriesOf(panel).map((row) => {
    const drawn = scene.series.get(row);
    const value = row.current ? row.current(header.figures) : last(drawn?.values);
    const key = row.drawing ?? "none";
    if (!row.below) y = band.top + band.height * (1 - Math.min(Math.max(height(row, drawn, value), 0) / top, 1));
    return { name: row.name, value: row.format(value), key, color: row.color, y, hook: row.hook };
  });
};
