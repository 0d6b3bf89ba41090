// Round ticks and axis tops. Every axis starts at 0.
export interface Scale {
  top: number;
  ticks: number[];
}

const upTo = (top: number, step: number) => Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);

/** Gigabytes: steps are powers of two; the top is used as it is, and has a tick of its own. */
export const memoryScale = (top: number): Scale => {
  let step = 2 ** -5;
  while (top / step > 4) step *= 2;
  const ticks = upTo(top, step).filter((tick) => tick === 0 || tick <= top - step / 3);
  return { top, ticks: [...ticks, top] };
};

/** Ebb's own gigabytes: the top is a multiple of half a step. */
export const ownMemoryScale = (highest: number): Scale => {
  const { step, top } = decimal(Math.max(highest, 0.02));
  return { top, ticks: upTo(top, step) };
};

/** Samples per micro-batch: up to the next power of two, plus an eighth. */
export const microScale = (highest: number): Scale => {
  let power = 2;
  while (power < highest) power *= 2;
  return { top: power * 1.125, ticks: [0, power / 2, power] };
};

/** Steps of 1, 2 or 5 times a power of ten; the top is a multiple of half a step. */
const decimal = (highest: number) => {
  const wanted = highest / 4;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= wanted * 0.999) ?? 10 * power;
  return { step, top: Math.max(Math.ceil((highest / step) * 2 - 1e-9) * (step / 2), step) };
};

/** Any value from 0, such as a loss. */
export const lossScale = (highest: number): Scale => {
  const { step, top } = decimal(highest > 0 ? highest : 1);
  return { top, ticks: upTo(top, step) };
};

/** A fraction. */
export const fractionScale = (): Scale => ({ top: 1, ticks: [0, 0.5, 1] });

/** Powers of ten between two positive values, or the numbers 1, 2 and 5 between few of them. The
 * scale is that of the logarithms. */
export const logScale = (lowest: number, highest: number): Scale & { bottom: number } => {
  const [bottom, top] = [Math.log10(lowest), Math.log10(Math.max(highest, lowest * 1.5))];
  const factors = top - bottom > 2 ? [1] : [1, 2, 5];
  const ticks: number[] = [];
  for (let power = Math.floor(bottom); power <= top; power++) {
    for (const factor of factors) {
      const tick = power + Math.log10(factor);
      if (tick >= bottom - 1e-9 && tick <= top + 1e-9) ticks.push(tick);
    }
  }
  return { bottom, top, ticks };
};

/** At most `most` + 1 round numbers from `from` to `to`. */
export const roundTicks = (from: number, to: number, most: number, whole: boolean): number[] => {
  const power = 10 ** Math.floor(Math.log10((to - from) / most));
  const least = (to - from) / most;
  const fitting = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= least * 0.999) ?? 10 * power;
  const step = whole ? Math.max(1, Math.round(fitting)) : fitting;
  const first = Math.ceil(from / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(to / step + 1e-9) - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
};

const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map((s) => s * 1000);

/** Round times, in milliseconds, at least `spacing` pixels apart on an axis of `width` pixels. */
export const timeTicks = (fromMs: number, toMs: number, width: number, spacing: number): number[] => {
  const least = ((toMs - fromMs) * spacing) / Math.max(width, 1);
  const step = timeSteps.find((s) => s >= least) ?? Math.ceil(least / 86_400_000) * 86_400_000;
  const ticks: number[] = [];
  for (let at = Math.ceil(fromMs / step) * step; at <= toMs; at += step) ticks.push(at);
  return ticks;
};
