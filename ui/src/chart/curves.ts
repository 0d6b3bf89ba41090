// How the series of a panel are drawn: most by uPlot, diamonds by hand.
import uPlot from "uplot";
import { timeAxis } from "./axis";
import type { Colors } from "./canvasTheme";
import type { Plot } from "./panel";
import type { Scene, Values } from "./scene";
import { perPanel, seriesOf, type PanelId, type SeriesRow } from "./series";

const points = { show: false };

type Style = (row: SeriesRow, colors: () => Colors) => uPlot.Series;

const stroke = (width: number, dash?: number[]): Style => (row, colors) => ({
  points, stroke: () => colors().series[row.color]!, width, ...(dash && { dash: dash.map((length) => length * uPlot.pxRatio) }),
});

/** Drawn in this order. Layers come first: each is filled from its upper edge down and covered
 * by those below it. Fills have no stroke: uPlot moves a stroked curve by half a pixel, and the
 * ends of the fill would shine through. */
const styles = {
  layer: (row, colors) => ({ points, fill: () => colors().series[row.color]!, width: 0 }),
  edge: (_, colors) => ({ points, stroke: () => colors().bg, width: 1 }),
  steps: (row, colors) => ({ ...stroke(2)(row, colors), fill: () => colors().faded, paths: uPlot.paths.stepped!({ align: 1 }) }),
  thin: stroke(1),
  line: stroke(2),
  dots: stroke(1, [2, 4]),
  dash: stroke(1.5, [6, 4]),
} satisfies Record<string, Style>;

interface Curve {
  row: SeriesRow;
  style: Style;
}

const curves = perPanel(({ id }): Curve[] =>
  Object.entries(styles).flatMap(([drawing, style]) => {
    const rows = seriesOf(id).filter((row) => row.array && (drawing === "edge" ? row.edge : row.drawing === drawing));
    return rows.map((row) => ({ row, style }));
  }),
);

export const uplotSeries = (panel: PanelId, colors: () => Colors): uPlot.Series[] => curves[panel].map(({ row, style }) => style(row, colors));

/** Times or steps, and the values of each curve, as uPlot takes them. All curves of a panel share
 * their times; one that is not shown has no value. */
export const uplotData = (panel: PanelId, scene: Scene): uPlot.AlignedData => {
  const drawn = curves[panel].map(({ row }) => scene.series.get(row));
  const at = drawn.find((one) => one)?.at ?? new Float64Array(0);
  const none: Values = Array.from(at, () => null);
  const places = scene.axis === timeAxis ? at : at.map((ms) => scene.axis.of(ms));
  return [places, ...drawn.map((one): Values => one?.high ?? none)] as unknown as uPlot.AlignedData;
};

const drawDiamonds = (plot: Plot, row: SeriesRow) => {
  const { ctx, scene } = plot;
  const drawn = scene.series.get(row);
  if (!drawn) return;
  const { at, high: values } = drawn;
  ctx.beginPath();
  for (let i = 0; i < at.length; i++) {
    const value = values[i] ?? null;
    if (value === null || at[i]! < scene.range.fromMs || at[i]! > scene.range.toMs) continue;
    const [x, y] = [plot.x(at[i]!), plot.y(value)];
    ctx.moveTo(x, y - 4.5);
    ctx.lineTo(x + 4.5, y);
    ctx.lineTo(x, y + 4.5);
    ctx.lineTo(x - 4.5, y);
    ctx.closePath();
  }
  ctx.fillStyle = scene.colors.bg;
  ctx.strokeStyle = scene.colors.series[row.color]!;
  ctx.lineWidth = 1.4;
  ctx.fill();
  ctx.stroke();
};

export const diamonds = (plot: Plot, panel: PanelId) => {
  for (const row of seriesOf(panel)) if (row.drawing === "diamonds") drawDiamonds(plot, row);
};
