// Changes of the micro-batch and of the rungs beside it: a dotted line through every panel; on the micro-batch panel a shape
// and a short text. A triangle tells the size's direction; a diamond stands for a change that is not one of size.
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

/** What a mark looks like; nothing where neither size nor rung changed. */
export const shapeOf = ({ change, from, to }: Pick<Mark, "change" | "from" | "to">) => {
  if (change === "prefetch" || change === "moments" || change === "checkpoint_more" || change === "checkpoint_less") return "diamond";
  return from === to ? null : to < from ? "down" : "up";
};

const corners = {
  down: [[-5, -4], [5, -4], [0, 4]], up: [[-5, 4], [5, 4], [0, -4]], diamond: [[-5, 0], [0, -5], [5, 0], [0, 5]],
} as const;

const drawn = (plot: Plot, mark: Mark) => {
  const shape = shapeOf(mark);
  if (!shape) return;
  const { ctx, scene } = plot;
  // What is no change of size stands where the size was, also while nothing is worked.
  const size = shape === "diamond" ? Math.max(mark.from, mark.to) : (mark.from + mark.to) / 2;
  const [x, y] = [plot.x(mark.at_ms), plot.y(size)];
  ctx.beginPath();
  for (const [right, below] of corners[shape]) ctx.lineTo(x + right, y + below);
  ctx.closePath();
  ctx.fillStyle = shape === "down" ? scene.colours.text : scene.colours.bg;
  ctx.fill();
  ctx.stroke();
};

export const shapes = (plot: Plot) => {
  const { ctx, scene } = plot;
  const marks = shown(plot).filter(shapeOf);
  ctx.strokeStyle = scene.colours.text;
  ctx.lineWidth = 1.25;
  ctx.lineJoin = "round";
  for (const mark of marks) drawn(plot, mark);

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
