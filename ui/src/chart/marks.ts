// Changes of the micro-batch: a dotted line through every panel; on the micro-batch panel a triangle and a short text.
import type { Mark } from "../types";
import { keepNewest } from "./apart";
import type { Plot } from "./panel";

const shown = (plot: Plot) => plot.scene.marks.filter((m) => m.at_ms >= plot.scene.stretch.fromMs && m.at_ms <= plot.scene.stretch.toMs);

export const dotted = (plot: Plot) => {
  const { ctx } = plot;
  ctx.beginPath();
  for (const mark of shown(plot)) {
    const x = Math.round(plot.x(mark.at_ms)) + 0.5;
    ctx.moveTo(x, plot.top);
    ctx.lineTo(x, plot.top + plot.height);
  }
  ctx.strokeStyle = plot.scene.colours["text-3"];
  ctx.lineWidth = 1;
  ctx.setLineDash([1, 3]);
  ctx.stroke();
  ctx.setLineDash([]);
};

const down = (mark: Mark) => mark.to < mark.from;

const triangle = (plot: Plot, mark: Mark) => {
  const { ctx, scene } = plot;
  const [x, y] = [plot.x(mark.at_ms), plot.y((mark.from + mark.to) / 2)];
  const tip = down(mark) ? 4 : -4;
  ctx.beginPath();
  ctx.moveTo(x - 5, y - tip);
  ctx.lineTo(x + 5, y - tip);
  ctx.lineTo(x, y + tip);
  ctx.closePath();
  ctx.fillStyle = down(mark) ? scene.colours.text : scene.colours.bg;
  ctx.fill();
  ctx.stroke();
};

export const triangles = (plot: Plot) => {
  const { ctx, scene } = plot;
  const marks = shown(plot).filter((mark) => mark.from !== mark.to);
  ctx.strokeStyle = scene.colours.text;
  ctx.lineWidth = 1.25;
  ctx.lineJoin = "round";
  for (const mark of marks) triangle(plot, mark);

  ctx.font = scene.colours.strong;
  ctx.fillStyle = scene.colours.text;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  const texts = marks.map((mark) => {
    const width = ctx.measureText(mark.short).width;
    const x = plot.x(mark.at_ms);
    const left = x + 10 + width > plot.left + plot.width ? x - 10 - width : x + 10;
    return { text: mark.short, left, right: left + width + 8 };
  });
  const keep = keepNewest(texts);
  texts.forEach(({ text, left }, i) => {
    if (keep[i] && left >= plot.left) ctx.fillText(text, left, plot.top + plot.height - 8);
  });
};
