// The horizontal axis: time, steps or epochs. Ranges, marks and the cursor are always times on the
// run's clock; an axis maps them to positions and back.
import { count, tickClock } from "../format";
import type { Pull } from "../unpackPull";
import type { ChartOptions } from "./viewOptions";
import type { TimeRange } from "./timeRange";
import { roundTicks, timeTicks } from "./ticks";

export interface Axis {
  of(ms: number): number;
  back(position: number): number;
  /** Positions of ticks that are at least `spacing` pixels apart. */
  ticks(from: number, to: number, width: number, spacing: number): number[];
  label(position: number): string;
}

export const timeAxis: Axis = { of: (ms) => ms, back: (ms) => ms, ticks: timeTicks, label: tickClock };

/** The line through points with increasing x; beyond them it continues with the slope of all. */
const line = (xs: ArrayLike<number>, ys: ArrayLike<number>) => {
  const last = xs.length - 1;
  const slope = (ys[last]! - ys[0]!) / (xs[last]! - xs[0]!);
  return (x: number) => {
    if (x <= xs[0]!) return ys[0]! + (x - xs[0]!) * slope;
    if (x >= xs[last]!) return ys[last]! + (x - xs[last]!) * slope;
    let [low, high] = [0, last];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle]! <= x) low = middle;
      else high = middle;
    }
    return ys[low]! + ((x - xs[low]!) / (xs[high]! - xs[low]!)) * (ys[high]! - ys[low]!);
  };
};

/** The points at which time and step increase together. */
const increasing = (pull: Pull) => {
  const [at, steps] = [pull.array("loss.at"), pull.array("loss.step")];
  const times: number[] = [];
  const done: number[] = [];
  for (let i = 0; i < at.length; i++) {
    const last = times.length - 1;
    if (last >= 0 && (at[i]! <= times[last]! || steps[i]! <= done[last]!)) continue;
    times.push(at[i]!);
    done.push(steps[i]!);
  }
  if (done[0] === 1 && times[0]! > 0) {
    times.unshift(0);
    done.unshift(0);
  }
  return { times, done };
};

/** The axis that was chosen; time while too few steps are known for another. */
export const axisOf = (pull: Pull, { axis }: ChartOptions, range: TimeRange): Axis => {
  const { times, done } = increasing(pull);
  if (axis === "time" || times.length < 2) return timeAxis;
  const per = axis === "epoch" ? (pull.header.started?.steps_per_epoch ?? 1) : 1;
  const positions = done.map((step) => step / per);
  const mapped: Axis = {
    of: line(times, positions),
    back: line(positions, times),
    ticks: (from, to, width, spacing) => roundTicks(from, to, Math.max(1, Math.floor(width / spacing)), axis === "step"),
    label: (position) => (Number.isInteger(position) ? count(position) : position.toFixed(position < 10 ? 1 : 0)),
  };
  return mapped.of(range.toMs) > mapped.of(range.fromMs) ? mapped : timeAxis;
};
