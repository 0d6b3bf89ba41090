// Changes that the memory controller made: a dotted line through every panel, and on the
// micro-batch panel a shape and a short text. A triangle points up or down with the micro-batch; a
// square marks any other change.
import { translate, t } from "../strings/t";
import type { Mark } from "../types";
import { keepNewest, placeLabels } from "./overlap";
import type { Plot } from "./panel";

const marksInRange = (plot: Plot) => plot.scene.marks.filter((m) => m.at_ms >= plot.scene.range.fromMs && m.at_ms <= plot.scene.range.toMs);

/** Lines that are closer than this would be a gray area. */
const LINE_GAP = 6;
/** With more changes than one in so many pixels, a sentence stands for all of them. */
const DENSE = 20;

const isDense = (plot: Plot, marks: Mark[]) => marks.length > plot.width / DENSE;

export const dottedLines = (plot: Plot) => {
  const { ctx } = plot;
  ctx.beginPath();
  let before = -Infinity;
  const marks = marksInRange(plot);
  if (isDense(plot, marks)) return;
  for (const mark of marks) {
    const x = Math.round(plot.x(mark.at_ms)) + 0.5;
    if (x - before < LINE_GAP) continue;
    before = x;
    ctx.moveTo(x, plot.top);
    ctx.lineTo(x, plot.top + plot.height);
  }
  ctx.strokeStyle = plot.scene.colors["text-3"];
  ctx.lineWidth = 1;
  ctx.setLineDash([1, 3]);
  ctx.stroke();
  ctx.setLineDash([]);
};

/** The shape of a mark, or null if it has none. */
export const shapeOf = ({ change, from, to }: Pick<Mark, "change" | "from" | "to">) => {
  if (change === "prefetch" || change === "moments" || change === "checkpoint_more" || change === "checkpoint_less") return "square";
  if (change === "start") return "square"; // the run was resumed
  return from === to ? null : to < from ? "down" : "up";
};

/** The text beside a shape. On the panel of the micro-batch, the two sizes say enough. */
export const labelOf = ({ change, from, to, short }: Pick<Mark, "change" | "from" | "to" | "short">) =>
  change === "shrink" || change === "grow" ? t("{from} to {to}", { from, to }) : translate(short);

const corners = {
  down: [[-5, -4], [5, -4], [0, 4]], up: [[-5, 4], [5, 4], [0, -4]], square: [[-3.5, -3.5], [3.5, -3.5], [3.5, 3.5], [-3.5, 3.5]],
} as const;

const drawShape = (plot: Plot, mark: Mark) => {
  const shape = shapeOf(mark);
  if (!shape) return;
  const { ctx, scene } = plot;
  // A square is drawn at the micro-batch before a pause, not at 0.
  const size = shape === "square" ? Math.max(mark.from, mark.to) : (mark.from + mark.to) / 2;
  const [x, y] = [plot.x(mark.at_ms), plot.y(size)];
  ctx.beginPath();
  for (const [right, below] of corners[shape]) ctx.lineTo(x + right, y + below);
  ctx.closePath();
  ctx.fillStyle = shape === "down" ? scene.colors.text : scene.colors.bg;
  ctx.fill();
  ctx.stroke();
};

const sentence = (plot: Plot) => {
  const { ctx, scene } = plot;
  ctx.font = scene.colors.strong;
  ctx.fillStyle = scene.colors.text;
  ctx.strokeStyle = scene.colors.bg;
  ctx.lineWidth = 3;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  const text = t("Too many changes to show here: zoom in, or open the list");
  ctx.strokeText(text, plot.left + 8, plot.top + plot.height - 8);
  ctx.fillText(text, plot.left + 8, plot.top + plot.height - 8);
};

export const changeShapes = (plot: Plot) => {
  const { ctx, scene } = plot;
  const marks = marksInRange(plot).filter(shapeOf);
  ctx.strokeStyle = scene.colors.text;
  ctx.lineWidth = 1.25;
  ctx.lineJoin = "round";
  if (isDense(plot, marks)) return sentence(plot);
  // Of shapes that would cover each other, the newest is drawn.
  const apart = keepNewest(marks.map((mark) => ({ left: plot.x(mark.at_ms) - 4, right: plot.x(mark.at_ms) + 4 })));
  marks.forEach((mark, i) => apart[i] && drawShape(plot, mark));

  ctx.font = scene.colors.strong;
  ctx.fillStyle = scene.colors.text;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  // On a halo, so that no line strikes a text through.
  ctx.strokeStyle = scene.colors.bg;
  ctx.lineWidth = 3;
  const texts = marks.map(labelOf);
  const widths = texts.map((text) => ctx.measureText(text).width);
  const lines = marksInRange(plot).map(({ at_ms }) => plot.x(at_ms));
  const places = placeLabels(marks.map(({ at_ms }, i) => ({ x: plot.x(at_ms), width: widths[i]! })), lines, plot.left, plot.left + plot.width);
  texts.forEach((text, i) => {
    const left = places[i] ?? null;
    if (left === null) return;
    ctx.strokeText(text, left, plot.top + plot.height - 8);
    ctx.fillText(text, left, plot.top + plot.height - 8);
  });
};
