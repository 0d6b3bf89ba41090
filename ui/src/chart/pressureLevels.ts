// Pressure levels: a tint behind every panel, and above the memory panel a strip with glyph and
// word.
import { size } from "../format";
import { t } from "../strings/t";
import type { LevelSpan } from "../types";
import type { Plot } from "./panel";

const glyphs = {
  warning: { outline: new Path2D("M8 1.6l7 12.4H1z"), bar: new Path2D("M8 6v4"), dot: 12.2 },
  critical: { outline: new Path2D("M5.2 1.2h5.6l4 4v5.6l-4 4H5.2l-4-4V5.2z"), bar: new Path2D("M8 4.4v4.2"), dot: 11.4 },
};

type Elevated = keyof typeof glyphs;

const elevated = (span: LevelSpan): Elevated | null => (span.level === "normal" ? null : span.level);

/** How far the panel's title extends over the plot. */
const TITLE = 66;

/** Fills the spans from `top` to `bottom`, in CSS pixels of the panel's canvas. */
export const tint = (plot: Plot, top: number, bottom: number) => {
  const { fromMs, toMs } = plot.scene.range;
  for (const span of plot.scene.spans) {
    const level = elevated(span);
    if (!level || span.to_ms < fromMs || span.from_ms > toMs) continue;
    const left = plot.x(span.from_ms);
    plot.ctx.fillStyle = plot.scene.colors[`level-${level}-wash`];
    plot.ctx.fillRect(left, top, Math.max(plot.x(span.to_ms) - left, 1), bottom - top);
  }
};

/** Marks start and end of the stress tests at the foot of the memory panel. The words stay inside
 * the plot. */
export const stressTests = (plot: Plot) => {
  const { ctx, scene } = plot;
  const bottom = plot.top + plot.height;
  for (const { fromMs, toMs, bytes } of scene.stress) {
    if (toMs < scene.range.fromMs || fromMs > scene.range.toMs) continue;
    const left = plot.x(fromMs);
    ctx.fillStyle = scene.colors.text;
    ctx.fillRect(left, bottom - 3, Math.max(plot.x(toMs) - left, 2), 3);
    ctx.font = scene.colors.strong;
    ctx.textAlign = "left";
    ctx.strokeStyle = scene.colors.bg;
    ctx.lineWidth = 3;
    const text = t("stress test, {size}", { size: size(bytes) });
    const start = Math.min(left, plot.left + plot.width - ctx.measureText(text).width - 4) + 2;
    ctx.strokeText(text, start, bottom - 7);
    ctx.fillText(text, start, bottom - 7);
  }
};

const glyph = (plot: Plot, level: Elevated, left: number, top: number) => {
  const { ctx, scene } = plot;
  const shape = glyphs[level];
  ctx.save();
  ctx.translate(left, top);
  ctx.scale(12 / 16, 12 / 16);
  ctx.fillStyle = ctx.strokeStyle = scene.colors[`level-${level}`];
  ctx.lineJoin = ctx.lineCap = "round";
  ctx.lineWidth = 1.4;
  ctx.fill(shape.outline);
  if (level === "warning") ctx.stroke(shape.outline);
  ctx.fillStyle = ctx.strokeStyle = scene.colors.bg;
  ctx.lineWidth = 1.7;
  ctx.stroke(shape.bar);
  ctx.beginPath();
  ctx.arc(8, shape.dot, 1, 0, 7);
  ctx.fill();
  ctx.restore();
};

/** The strip with glyph and word. A word is left out if it would overlap the next span; the
 * glyph stays if it fits. */
export const levelStrip = (plot: Plot) => {
  const { ctx, scene } = plot;
  const spans = scene.spans.filter((span) => elevated(span) && span.to_ms >= scene.range.fromMs && span.from_ms <= scene.range.toMs);
  ctx.font = scene.colors.strong;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  spans.forEach((span, i) => {
    const level = elevated(span);
    if (!level) return;
    const left = plot.x(span.from_ms);
    const width = Math.max(plot.x(span.to_ms) - left, 1);
    const next = spans[i + 1];
    const start = Math.max(left, plot.left + TITLE); // beside the panel's title
    const room = (next ? plot.x(next.from_ms) : plot.left + plot.width) - start;
    ctx.fillStyle = scene.colors[`level-${level}`];
    ctx.fillRect(left, plot.top - 4, width, 4);
    if (room > 14 && start <= left + width) glyph(plot, level, start - 1, plot.top - 19);
    else return;
    if (room < 22 + ctx.measureText(t(level)).width) return;
    ctx.fillStyle = scene.colors[`level-${level}-text`];
    ctx.fillText(t(level), start + 15, plot.top - 9);
  });
};
