// One uPlot panel on the shared time axis. uPlot scales, ticks and strokes; the marks above and below the curves are
// drawn by hooks, in CSS pixels.
import uPlot from "uplot";
import { clock } from "../format";
import { AXIS, FOOT, LEFT, SPILL, type Band } from "./layout";
import type { Scene } from "./scene";
import { timeTicks, type Scale } from "./ticks";

/** The plot's place on its canvas, in CSS pixels, and where time and values lie on it. */
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

export interface Kind {
  scale(scene: Scene): Scale;
  series: (colours: () => Scene["colours"]) => uPlot.Series[];
  under(plot: Plot): void;
  over(plot: Plot): void;
  timeAxis?: true;
}

const inPixels = (u: uPlot, scene: Scene, scale: Scale, draw: (plot: Plot) => void) => {
  const ratio = uPlot.pxRatio;
  const [left, top, width, height] = [u.bbox.left / ratio, u.bbox.top / ratio, u.bbox.width / ratio, u.bbox.height / ratio];
  const { fromMs, toMs } = scene.stretch;
  const ctx = u.ctx;
  ctx.save();
  ctx.scale(ratio, ratio);
  draw({
    ctx, scene, left, top, width, height,
    x: (ms) => left + ((Math.min(Math.max(ms, fromMs), toMs) - fromMs) / (toMs - fromMs)) * width,
    y: (value) => top + height * (1 - Math.min(value / scale.top, 1)),
  });
  ctx.restore();
};

const yAxis = (kind: Kind, current: () => Scene): uPlot.Axis => ({
  size: LEFT, gap: 8, font: current().colours.caption, labelGap: 0,
  stroke: () => current().colours["text-3"],
  grid: { stroke: () => current().colours.grid, width: 1 },
  ticks: { show: false },
  splits: () => kind.scale(current()).ticks,
  values: (_, splits) => splits.map((value) => String(Number(value.toPrecision(6)))),
});

const xAxis = (kind: Kind, current: () => Scene): uPlot.Axis => ({
  show: kind.timeAxis ?? false, size: AXIS, gap: 2, font: current().colours.caption,
  stroke: () => current().colours["text-3"],
  grid: { show: false },
  border: { show: true, stroke: () => current().colours["control-edge"], width: 1 },
  ticks: { stroke: () => current().colours["control-edge"], width: 1, size: 4 },
  splits: (u) => timeTicks(current().stretch.fromMs, current().stretch.toMs, u.bbox.width / uPlot.pxRatio, 90),
  // The right end belongs to "now".
  values: (u, splits) => splits.map((at) => (u.valToPos(at, "x") > u.bbox.width / uPlot.pxRatio - 22 && at > 0 ? "" : clock(at))),
});

export const makePanel = (root: HTMLElement, kind: Kind, current: () => Scene, band: Band, width: number): uPlot => {
  const series = kind.series(() => current().colours);
  return new uPlot(
    {
      width, height: band.canvasHeight,
      padding: [band.top - band.canvasTop, SPILL, kind.timeAxis ? 0 : FOOT, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: () => [current().stretch.fromMs, current().stretch.toMs] },
        y: { range: () => [0, kind.scale(current()).top] },
      },
      axes: [xAxis(kind, current), yAxis(kind, current)],
      series: [{}, ...series],
      hooks: {
        drawClear: [(u) => inPixels(u, current(), kind.scale(current()), kind.under)],
        draw: [(u) => inPixels(u, current(), kind.scale(current()), kind.over)],
      },
    },
    [[], ...series.map(() => [])],
    root,
  );
};
