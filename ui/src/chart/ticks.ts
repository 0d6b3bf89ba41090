// Round ticks and axis tops. Every axis starts at 0.
export interface Scale {
  top: number;
  ticks: number[];
}

const upTo = (top: number, step: number) => Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);

/** Gigabytes: steps are powers of two; the top is used as it is. */
export const memoryScale = (top: number): Scale => {
  let step = 0.25;
  while (top / step > 4) step *= 2;
  return { top, ticks: upTo(top, step) };
};

/** Samples per micro-batch: up to the next power of two, plus an eighth. */
export const microScale = (highest: number): Scale => {
  let power = 2;
  while (power < highest) power *= 2;
  return { top: power * 1.125, ticks: [0, power / 2, power] };
};

/** Loss: steps of 1, 2 or 5 times a power of ten; the top is a multiple of half a step. */
export const lossScale = (highest: number): Scale => {
  const wanted = Math.max(highest, 1e-3) / 4;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= wanted * 0.999) ?? 10 * power;
  const top = Math.ceil((highest / step) * 2 - 1e-9) * (step / 2);
  return { top: Math.max(top, step), ticks: upTo(Math.max(top, step), step) };
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
