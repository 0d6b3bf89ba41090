// What is left to other apps, in bytes, and the max_system_fraction that means. Numbers in, numbers out.
import type { PlanView } from "../types";

/** The most that may be left, as a share of all memory; Rust checks the same. */
export const MOST_LEFT = 0.5;
const LEAST_LEFT = 0.05;
/** 0.1 GB. */
export const STEP_BYTES = 2 ** 30 / 10;

/** However impolite, a machine keeps some room. */
export const leftBytes = (plan: PlanView, totalBytes: number, max_system_fraction: number) => Math.max((1 - max_system_fraction) * totalBytes, plan.leave_least_bytes);

export const politenessOf = (plan: PlanView, totalBytes: number, leave: number) => {
  const bytes = Math.min(MOST_LEFT * totalBytes, Math.max(plan.leave_least_bytes, leave));
  return 1 - Math.min(MOST_LEFT, Math.max(LEAST_LEFT, bytes / totalBytes));
};

export interface Tick {
  size: number;
  x: number;
}

/** Where the line must stand for each micro-batch, from the largest down, where the numbers have room beside each other. */
export const ticks = (peaks: [number, number][], x: (peak: number) => number, left: number, right: number): Tick[] => {
  const placed: Tick[] = [];
  for (const [size, peak] of [...peaks].sort((a, b) => b[0] - a[0])) {
    const tick = { size, x: x(peak) };
    const inside = tick.x >= left && tick.x <= right;
    if (inside && placed.every((other) => Math.abs(other.x - tick.x) >= 18)) placed.push(tick);
  }
  return placed.reverse();
};
