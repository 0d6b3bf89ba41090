// Which stretch of the run's clock is shown, and how it is moved: pure arithmetic in milliseconds.
export const whole = Number.POSITIVE_INFINITY;

/** Following: the last `lengthMs` (or the whole run) up to now. Fixed: what the reader chose. */
export type Span = { follow: true; lengthMs: number } | { follow: false; fromMs: number; toMs: number };

export interface Stretch {
  fromMs: number;
  toMs: number;
}

export const ranges = [
  { name: "2 min", lengthMs: 120_000 },
  { name: "10 min", lengthMs: 600_000 },
  { name: "Whole run", lengthMs: whole },
];

const shortest = 10_000;
/** A run that has just begun is drawn on this much time, so that its first seconds do not race over the panel. */
const young = 30_000;

export const stretch = (span: Span, nowMs: number): Stretch => {
  if (!span.follow) return { fromMs: span.fromMs, toMs: span.toMs };
  const toMs = Math.max(nowMs, Math.min(span.lengthMs, young));
  return { fromMs: Math.max(0, toMs - span.lengthMs), toMs };
};

/** Zooms around `aroundMs`, or at the right edge while following. */
export const zoom = (span: Span, factor: number, nowMs: number, aroundMs?: number): Span => {
  const { fromMs, toMs } = stretch(span, nowMs);
  const end = Math.max(nowMs, young);
  const lengthMs = Math.min(Math.max((toMs - fromMs) * factor, shortest), end);
  if (span.follow && aroundMs === undefined) return { follow: true, lengthMs: lengthMs >= end ? whole : lengthMs };
  const middle = aroundMs ?? (fromMs + toMs) / 2;
  const share = (middle - fromMs) / (toMs - fromMs);
  return inside(middle - lengthMs * share, lengthMs, end);
};

/** Moves the shown stretch; this ends following. */
export const pan = (span: Span, byMs: number, nowMs: number): Span => {
  const { fromMs, toMs } = stretch(span, nowMs);
  return inside(fromMs + byMs, toMs - fromMs, Math.max(nowMs, young));
};

const inside = (fromMs: number, lengthMs: number, endMs: number): Span => {
  const from = Math.min(Math.max(0, fromMs), Math.max(0, endMs - lengthMs));
  return { follow: false, fromMs: from, toMs: from + lengthMs };
};
