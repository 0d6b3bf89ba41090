// The time range that is shown, and how it moves. Times are milliseconds on the run's clock.
import type { Label } from "../strings/t";
import type { RunStatus } from "../types";

export const wholeRun = Number.POSITIVE_INFINITY;

/** Following: the last `lengthMs` up to now, or the whole run. Fixed: the range that the reader
 * chose. */
export type Span = { follow: true; lengthMs: number } | { follow: false; fromMs: number; toMs: number };

export interface TimeRange {
  fromMs: number;
  toMs: number;
}

export const ranges: { name: Label; lengthMs: number }[] = [
  { name: "2 min", lengthMs: 120_000 },
  { name: "10 min", lengthMs: 600_000 },
  { name: "Whole run", lengthMs: wholeRun },
];

/** What is shown of a run at first: the last two minutes before an unexpected end. */
export const firstSpan = (status: RunStatus): Span => ({ follow: true, lengthMs: ranges[status === "ended_early" ? 0 : 1]!.lengthMs });

const MIN_LENGTH_MS = 5_000;
const MIN_SELECTED_MS = 2_000;
/** The axis of a young run is at least this long, so that its first seconds do not race
 * across the panel. */
const MIN_AXIS_MS = 30_000;

export const timeRange = (span: Span, nowMs: number): TimeRange => {
  if (!span.follow) return { fromMs: span.fromMs, toMs: span.toMs };
  const toMs = Math.max(nowMs, Math.min(span.lengthMs, MIN_AXIS_MS));
  return { fromMs: Math.max(0, toMs - span.lengthMs), toMs };
};

/** Zooms around `aroundMs`, or at the right edge while following. */
export const zoom = (span: Span, factor: number, nowMs: number, aroundMs?: number): Span => {
  const { fromMs, toMs } = timeRange(span, nowMs);
  const end = Math.max(nowMs, MIN_AXIS_MS);
  const lengthMs = Math.min(Math.max((toMs - fromMs) * factor, MIN_LENGTH_MS), end);
  if (span.follow && aroundMs === undefined) return { follow: true, lengthMs: lengthMs >= end ? wholeRun : lengthMs };
  if (lengthMs >= end) return { follow: true, lengthMs: wholeRun };
  const middle = aroundMs ?? (fromMs + toMs) / 2;
  const share = (middle - fromMs) / (toMs - fromMs);
  return inside(middle - lengthMs * share, lengthMs, end);
};

/** The range between two times; `null` if they are too close to have been meant. */
export const select = (oneMs: number, otherMs: number, nowMs: number): Span | null => {
  const [from, to] = [Math.max(0, Math.min(oneMs, otherMs)), Math.min(Math.max(oneMs, otherMs), Math.max(nowMs, MIN_AXIS_MS))];
  return to - from < 200 ? null : inside((from + to) / 2 - Math.max(to - from, MIN_SELECTED_MS) / 2, Math.max(to - from, MIN_SELECTED_MS), Math.max(nowMs, MIN_AXIS_MS));
};

/** Moves the range and stops following. */
export const pan = (span: Span, byMs: number, nowMs: number): Span => {
  const { fromMs, toMs } = timeRange(span, nowMs);
  return inside(fromMs + byMs, toMs - fromMs, Math.max(nowMs, MIN_AXIS_MS));
};

const inside = (fromMs: number, lengthMs: number, endMs: number): Span => {
  const from = Math.min(Math.max(0, fromMs), Math.max(0, endMs - lengthMs));
  return { follow: false, fromMs: from, toMs: from + lengthMs };
};
