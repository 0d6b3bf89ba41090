// Where the panels stand, in CSS pixels from the top left of the chart area. The gaps between them hold their titles.
export const LEFT = 40;
export const RIGHT = 148;
export const AXIS = 22;
/** Room right of the plots that belongs to the canvases, for the last time label. */
export const SPILL = 40;
const HEAD = 24;
const GAP = 14;
export const FOOT = 8;

export interface Band {
  /** Top of the plot. */
  top: number;
  height: number;
  /** Top of the panel's canvas: its title and the gap above it belong to it, and room below for the lowest tick's text. */
  canvasTop: number;
  canvasHeight: number;
}

export interface Layout {
  width: number;
  height: number;
  plotWidth: number;
  memory: Band;
  micro: Band;
  loss: Band;
  bottom: number;
}

export const layout = (width: number, height: number): Layout => {
  const free = Math.max(height - AXIS - 3 * HEAD - 2 * GAP, 90);
  const memoryHeight = Math.round(free * 0.48);
  const microHeight = Math.round(free * 0.2);
  const lossHeight = free - memoryHeight - microHeight;
  const band = (canvasTop: number, head: number, plot: number, foot: number): Band => ({
    top: canvasTop + head, height: plot, canvasTop, canvasHeight: head + plot + foot,
  });
  const memory = band(0, HEAD, memoryHeight, FOOT);
  const micro = band(HEAD + memoryHeight, GAP + HEAD, microHeight, FOOT);
  const loss = band(micro.top + microHeight, GAP + HEAD, lossHeight, AXIS);
  return { width, height, plotWidth: Math.max(width - LEFT - RIGHT, 100), memory, micro, loss, bottom: loss.top + loss.height };
};
