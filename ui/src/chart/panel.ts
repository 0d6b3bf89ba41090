// One uPlot panel on the shared time axis. uPlot draws axes and curves; hooks draw the marks above
// and below them, in CSS pixels.
import uPlot from "uplot";
import { clock } from "../format";
import { diamonds, uplotSeries } from "./curves";
import { AXIS, FOOT, LEFT, SPILL, type Band } from "./layout";
import { changeShapes, dottedLines } from "./marks";
import type { Scene } from "./scene";
import { PANELS, type PanelRow } from "./series";
import { timeTicks } from "./ticks";
import { levelStrip, tint } from "./tint";

/** The plot's position on its canvas in CSS pixels, and the positions of times and values. */
export interface Plot {
  ctx: CanvasRenderingContext2D;
  scene: Scene;
  left: number;
  top: number;
  width: number;
  height: number;
  x(ms: number): number;
  y(value: number): number;
}

const hasTimeAxis = (panel: PanelRow) => panel === PANELS.at(-1);

const drawUnder = (plot: Plot, panel: PanelRow) => tint(plot, panel.levels ? plot.top : 0, plot.top + plot.height);

const drawOver = (plot: Plot, panel: PanelRow) => {
  dottedLines(plot);
  if (panel.levels) levelStrip(plot);
  if (panel.changes) changeShapes(plot);
  diamonds(plot, panel.id);
};

const inPixels = (u: uPlot, scene: Scene, panel: PanelRow, draw: (plot: Plot, panel: PanelRow) => void) => {
  const ratio = uPlot.pxRatio;
  const [left, top, width, height] = [u.bbox.left / ratio, u.bbox.top / ratio, u.bbox.width / ratio, u.bbox.height / ratio];
  const { fromMs, toMs } = scene.range;
  const { top: highest } = scene.scales[panel.id];
  const ctx = u.ctx;
  ctx.save();
  ctx.scale(ratio, ratio);
  const plot: Plot = {
    ctx, scene, left, top, width, height,
    x: (ms) => left + ((Math.min(Math.max(ms, fromMs), toMs) - fromMs) / (toMs - fromMs)) * width,
    y: (value) => top + height * (1 - Math.min(value / highest, 1)),
  };
  draw(plot, panel);
  ctx.restore();
};

const yAxis = (panel: PanelRow, current: () => Scene): uPlot.Axis => ({
  size: LEFT, gap: 8, font: current().colors.caption, labelGap: 0,
  stroke: () => current().colors["text-3"],
  grid: { stroke: () => current().colors.grid, width: 1 },
  ticks: { show: false },
  splits: () => current().scales[panel.id].ticks,
  values: (_, splits) => splits.map((value) => String(Number(value.toPrecision(6)))),
});

const xAxis = (panel: PanelRow, current: () => Scene): uPlot.Axis => ({
  show: hasTimeAxis(panel), size: AXIS, gap: 2, font: current().colors.caption,
  stroke: () => current().colors["text-3"],
  grid: { show: false },
  border: { show: true, stroke: () => current().colors["control-edge"], width: 1 },
  ticks: { stroke: () => current().colors["control-edge"], width: 1, size: 4 },
  splits: (u) => timeTicks(current().range.fromMs, current().range.toMs, u.bbox.width / uPlot.pxRatio, 90),
  // The right end shows the current time instead.
  values: (u, splits) => splits.map((at) => (u.valToPos(at, "x") > u.bbox.width / uPlot.pxRatio - 22 && at > 0 ? "" : clock(at))),
});

export const makePanel = (root: HTMLElement, panel: PanelRow, current: () => Scene, band: Band, width: number): uPlot => {
  const series = uplotSeries(panel.id, () => current().colors);
  return new uPlot(
    {
      width, height: band.canvasHeight,
      padding: [band.top - band.canvasTop, SPILL, hasTimeAxis(panel) ? 0 : FOOT, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: () => [current().range.fromMs, current().range.toMs] },
        y: { range: () => [0, current().scales[panel.id].top] },
      },
      axes: [xAxis(panel, current), yAxis(panel, current)],
      series: [{}, ...series],
      hooks: {
        drawClear: [(u) => inPixels(u, current(), panel, drawUnder)],
        draw: [(u) => inPixels(u, current(), panel, drawOver)],
      },
    },
    [[], ...series.map(() => [])],
    root,
  );
};
