// Positions of the panels, in CSS pixels from the top left of the chart area. The gaps between
// panels hold their titles.
import { PANELS, type PanelId } from "./series";

export const LEFT = 40;
export const RIGHT = 148;
export const AXIS = 22;
/** How far the canvases extend to the right of the plots, for the last time label. */
export const SPILL = 40;
const HEAD = 24;
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

export const layout = (width: number, height: number): Layout => {
  const gaps = PANELS.length - 1;
  const free = Math.max(height - AXIS - PANELS.length * HEAD - gaps * GAP, 90);
  const bands = {} as Record<PanelId, Band>;
  let canvasTop = 0;
  let used = 0;
  PANELS.forEach((panel, i) => {
    const last = i === gaps;
    const plot = last ? free - used : Math.round(free * panel.share);
    const head = i === 0 ? HEAD : GAP + HEAD;
    bands[panel.id] = { top: canvasTop + head, height: plot, canvasTop, canvasHeight: head + plot + (last ? AXIS : FOOT) };
    canvasTop += head + plot;
    used += plot;
  });
  return { width, height, plotWidth: Math.max(width - LEFT - RIGHT, 100), bands, bottom: canvasTop };
};
