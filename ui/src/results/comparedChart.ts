// The curves of two runs over each other: where their points are, and the ticks of the axes.
import { count } from "../format";
import { fractionScale, lossScale, roundTicks } from "../chart/ticks";
import { decimal, translate, t } from "../strings/t";
import type { ComparedCurves } from "../types";

type Points = [number, number][];

export interface Drawn {
  /** The path of this run, and of the other one. */
  paths: [string, string];
  /** Position and text of each tick. */
  x: [number, string][];
  y: [number, string][];
}

/** The axis ends above the highest value of the later nine tenths, so that the first steps, whose
 * loss is often much higher, do not flatten all others. */
const highest = (all: Points, last: number) => {
  const later = all.filter(([at]) => at >= last / 10);
  return Math.max(1e-9, ...(later.length > 0 ? later : all).map(([, value]) => value));
};

/** Draws into `width` times `height` pixels. Higher values leave the chart at its top. */
export const drawn = ({ own, other, fraction }: ComparedCurves, width: number, height: number): Drawn => {
  const all = [...own, ...other];
  const last = Math.max(1, ...all.map(([at]) => at));
  const scale = fraction ? fractionScale() : lossScale(highest(all, last));
  const x = (at: number) => (at / last) * width;
  const y = (value: number) => (1 - value / scale.top) * height;
  const path = (points: Points) => points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return {
    paths: [path(own), path(other)],
    x: roundTicks(0, last, 4, true).map((tick) => [x(tick), count(tick)]),
    y: scale.ticks.map((tick) => [y(tick), fraction ? `${Math.round(100 * tick)} %` : decimal(String(Number(tick.toPrecision(3))))]),
  };
};

/** The last value of a curve in words. */
const end = (points: Points, fraction: boolean) => {
  const value = points.at(-1)?.[1];
  return value === undefined ? t("no value") : decimal(fraction ? `${(100 * value).toFixed(1)} %` : value.toPrecision(3));
};

/** "Held-out loss by step. At the end, this run has 0.241, and the other run has 0.873." */
export const inWords = ({ title, own, other, fraction }: ComparedCurves, axis: string) =>
  t("{title} by {axis}. At the end, this run has {own}, and the other run has {other}.", { title: translate(title), axis: translate(axis), own: end(own, fraction), other: end(other, fraction) });
