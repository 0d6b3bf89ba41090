// Positions of the panels, in CSS pixels from the top left of the chart area. The gaps between
// panels hold their titles.
import { PANELS, type PanelId, type PanelRow } from "./series";

export const LEFT = 40;
export const RIGHT = 148;
export const AXIS = 22;
/** How far the canvases extend to the right of the plots, for the last time label. */
export const SPILL = 40;
const HEAD = 24;
/** Height of the switch of the memory shown, above the names of the first panel. */
export const SWITCH = 24;
const GAP = 14;
export const FOOT = 8;

export interface Band {
  /** Top of the plot. */
  top: number;
  height: number;
  /** Top of the panel's canvas, which includes the title, the gap above it, and space below for
   * the lowest tick label. */
  canvasTop: number;
  canvasHeight: number;
}

export interface Layout {
  width: number;
  height: number;
  plotWidth: number;
  bands: Record<PanelId, Band>;
  /** Bottom of the lowest plot. */
  bottom: number;
}

/** A panel's plot has at least this height for each part of its share; with many panels, the
 * charts scroll. */
const LEAST_PER_SHARE = 2.2;

/** The height below which the panels would be too small to read. */
export const leastHeight = (panels: PanelRow[]) =>
  AXIS + panels.length * (HEAD + GAP) - GAP + panels.reduce((sum, { share }) => sum + share * LEAST_PER_SHARE, 0);

export const layout = (width: number, height: number, panels: PanelRow[] = PANELS.filter(({ choice }) => !choice)): Layout => {
  const gaps = panels.length - 1;
  const shares = panels.reduce((sum, { share }) => sum + share, 0);
  const free = Math.max(height - AXIS - panels.length * HEAD - gaps * GAP, 90);
  const bands = {} as Record<PanelId, Band>;
  let canvasTop = 0;
  let used = 0;
  panels.forEach((panel, i) => {
    const last = i === gaps;
    const plot = last ? free - used : Math.round((free * panel.share) / shares);
    const head = i === 0 ? HEAD : GAP + HEAD;
    bands[panel.id] = { top: canvasTop + head, height: plot, canvasTop, canvasHeight: head + plot + (last ? AXIS : FOOT) };
    canvasTop += head + plot;
    used += plot;
  });
  return { width, height, plotWidth: Math.max(width - LEFT - RIGHT, 100), bands, bottom: canvasTop };
};

/** Whether a position is over the first panel. The box of the cursor is then at the bottom, so that
 * it does not hide the curves that are looked at. */
export const isOverFirst = (y: number, { bands }: Layout, [first]: PanelRow[]) => first !== undefined && y < bands[first.id].top + bands[first.id].height;
