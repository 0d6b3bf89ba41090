// Converts between the bytes left to other apps and `max_system_fraction`.
import type { PlanView } from "../types";

/** Largest and smallest share of memory that can be left to other apps. Rust checks the same
 * limits. */
export const MAX_LEFT = 0.5;
const MIN_LEFT = 0.05;
/** Step of the slider: 0.1 GB. */
export const STEP_BYTES = 2 ** 30 / 10;

/** Never less than the machine needs. */
export const leftBytes = (plan: PlanView, totalBytes: number, max_system_fraction: number) => Math.max((1 - max_system_fraction) * totalBytes, plan.leave_least_bytes);

export const fractionOf = (plan: PlanView, totalBytes: number, leave: number) => {
  const bytes = Math.min(MAX_LEFT * totalBytes, Math.max(plan.leave_least_bytes, leave));
  return 1 - Math.min(MAX_LEFT, Math.max(MIN_LEFT, bytes / totalBytes));
};

export interface Tick {
  size: number;
  x: number;
}

/** For each micro-batch size, the position of the budget line at which it fits. Sizes that would
 * overlap a larger one are left out. */
export const ticks = (peaks: [number, number][], x: (peak: number) => number, left: number, right: number): Tick[] => {
  const placed: Tick[] = [];
  for (const [size, peak] of [...peaks].sort((a, b) => b[0] - a[0])) {
    const tick = { size, x: x(peak) };
    const inside = tick.x >= left && tick.x <= right;
    if (inside && placed.every((other) => Math.abs(other.x - tick.x) >= 18)) placed.push(tick);
  }
  return placed.reverse();
};
