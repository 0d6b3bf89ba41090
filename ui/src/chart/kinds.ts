// The three panels: what each draws, from the bottom up.
import uPlot from "uplot";
import { dotted, shapes } from "./marks";
import type { Kind, Plot } from "./panel";
import { strip, tint } from "./tint";

const points = { show: false };
const layers = ["series-activations", "series-state", "series-others", "series-system"] as const;

/** The stack is filled from its highest edge down, so that each fill covers what lies under its own edge.
 * Fills have no stroke: uPlot moves a stroked curve by half a pixel, and the fill's ends would shine through. */
export const memory: Kind = {
  scale: (scene) => scene.scales.memory,
  series: (colours) => [
    ...layers.map((name): uPlot.Series => ({ points, fill: () => colours()[name], width: 0 })),
    ...[0, 1].map((): uPlot.Series => ({ points, stroke: () => colours().bg, width: 1 })),
    { points, stroke: () => colours()["series-budget"], width: 1.5, dash: [6, 4].map((length) => length * uPlot.pxRatio) },
  ],
  under: (plot) => tint(plot, plot.top, plot.top + plot.height),
  over: (plot) => {
    dotted(plot);
    strip(plot);
  },
};

export const micro: Kind = {
  scale: (scene) => scene.scales.micro,
  series: (colours) => [
    {
      points, width: 2, fill: () => colours().faded, stroke: () => colours()["series-state"],
      paths: uPlot.paths.stepped!({ align: 1 }),
    },
  ],
  under: (plot) => tint(plot, 0, plot.top + plot.height),
  over: (plot) => {
    dotted(plot);
    shapes(plot);
  },
};

const diamonds = (plot: Plot) => {
  const { ctx, scene } = plot;
  const { at, loss } = scene.evaluation;
  ctx.beginPath();
  for (let i = 0; i < at.length; i++) {
    if (!Number.isFinite(loss[i]) || at[i]! < scene.stretch.fromMs || at[i]! > scene.stretch.toMs) continue;
    const [x, y] = [plot.x(at[i]!), plot.y(loss[i]!)];
    ctx.moveTo(x, y - 4.5);
    ctx.lineTo(x + 4.5, y);
    ctx.lineTo(x, y + 4.5);
    ctx.lineTo(x - 4.5, y);
    ctx.closePath();
  }
  ctx.fillStyle = scene.colours.bg;
  ctx.strokeStyle = scene.colours["series-evaluation"];
  ctx.lineWidth = 1.4;
  ctx.fill();
  ctx.stroke();
};

export const loss: Kind = {
  scale: (scene) => scene.scales.loss,
  series: (colours) => [
    { points, stroke: () => colours()["series-raw"], width: 1 },
    { points, stroke: () => colours()["series-smoothed"], width: 2 },
  ],
  under: (plot) => tint(plot, 0, plot.top + plot.height),
  over: (plot) => {
    dotted(plot);
    diamonds(plot);
  },
  timeAxis: true,
};
