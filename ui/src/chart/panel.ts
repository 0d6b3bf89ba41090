// One uPlot panel on the shared time axis. uPlot draws axes and curves; hooks draw the marks above
// and below them, in CSS pixels.
import uPlot from "uplot";
import { diamonds, uplotSeries } from "./curves";
import { AXIS, FOOT, LEFT, SPILL, type Band } from "./layout";
import { changeShapes, dottedLines } from "./changeMarks";
import type { Scene } from "./scene";
import type { PanelRow } from "./series";
import { levelStrip, stressTests, tint } from "./pressureLevels";
import { decimal } from "../strings/t";

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

const isLast = (panel: PanelRow, scene: Scene) => panel === scene.panels.at(-1);

const drawUnder = (plot: Plot, panel: PanelRow) => tint(plot, panel.levels ? plot.top : 0, plot.top + plot.height);

const drawOver = (plot: Plot, panel: PanelRow) => {
  dottedLines(plot);
  if (panel.levels) {
    levelStrip(plot);
    stressTests(plot);
  }
  if (panel.changes) changeShapes(plot);
  diamonds(plot, panel.id);
};

const inPixels = (u: uPlot, scene: Scene, panel: PanelRow, draw: (plot: Plot, panel: PanelRow) => void) => {
  const ratio = uPlot.pxRatio;
  const [left, top, width, height] = [u.bbox.left / ratio, u.bbox.top / ratio, u.bbox.width / ratio, u.bbox.height / ratio];
  const { fromMs, toMs } = scene.range;
  const { bottom: lowest, top: highest } = scene.scales[panel.id];
  const [first, last] = [scene.axis.of(fromMs), scene.axis.of(toMs)];
  const ctx = u.ctx;
  ctx.save();
  ctx.scale(ratio, ratio);
  const plot: Plot = {
    ctx, scene, left, top, width, height,
    x: (ms) => left + ((scene.axis.of(Math.min(Math.max(ms, fromMs), toMs)) - first) / (last - first)) * width,
    y: (value) => top + height * (1 - Math.min(Math.max((value - lowest) / (highest - lowest), 0), 1)),
  };
  draw(plot, panel);
  ctx.restore();
};

/** "16", "0.25", "1e-4": short enough for the space at the left. */
const tickLabel = (panel: PanelRow, scene: Scene, tick: number) => {
  if (panel.label) return panel.label(tick);
  const value = Number((scene.scales[panel.id].log ? 10 ** tick : tick).toPrecision(3));
  const text = String(value);
  return text.length > 5 ? value.toExponential(0) : decimal(text);
};

const yAxis = (panel: PanelRow, current: () => Scene): uPlot.Axis => ({
  size: LEFT, gap: 8, font: current().colors.caption, labelGap: 0,
  stroke: () => current().colors["text-3"],
  grid: { stroke: () => current().colors.grid, width: 1 },
  ticks: { show: false },
  splits: () => current().scales[panel.id].ticks,
  values: (_, splits) => splits.map((value) => tickLabel(panel, current(), value)),
});

const xAxis = (panel: PanelRow, current: () => Scene): uPlot.Axis => ({
  show: isLast(panel, current()), size: AXIS, gap: 2, font: current().colors.caption,
  stroke: () => current().colors["text-3"],
  grid: { show: false },
  border: { show: true, stroke: () => current().colors["control-edge"], width: 1 },
  ticks: { stroke: () => current().colors["control-edge"], width: 1, size: 4 },
  splits: (u) => {
    const [from, to] = ends(current());
    return current().axis.ticks(from, to, u.bbox.width / uPlot.pxRatio, 90);
  },
  // The right end shows the current time instead.
  values: (u, splits) => splits.map((at) => (u.valToPos(at, "x") > u.bbox.width / uPlot.pxRatio - 22 && at > 0 ? "" : current().axis.label(at))),
});

const ends = ({ axis, range }: Scene): [number, number] => [axis.of(range.fromMs), axis.of(range.toMs)];

export const makePanel = (root: HTMLElement, panel: PanelRow, current: () => Scene, band: Band, width: number): uPlot => {
  const series = uplotSeries(panel.id, () => current().colors);
  return new uPlot(
    {
      width, height: band.canvasHeight,
      padding: [band.top - band.canvasTop, SPILL, isLast(panel, current()) ? 0 : FOOT, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: () => ends(current()) },
        y: { range: () => [current().scales[panel.id].bottom, current().scales[panel.id].top] },
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
