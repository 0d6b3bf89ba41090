// The names at the right of each panel with their current values: where each would like to stand. No legend to look up.
import type { Band, Layout } from "../chart/layout";
import type { Scene } from "../chart/scene";
import type { Scale } from "../chart/ticks";
import { count, loss, missing } from "../format";
import type { PullHeader } from "../types";

export interface Name {
  name: string;
  value: string;
  /** Shape and colour of the key beside the name. */
  key: "dash" | "line" | "thin" | "block" | "diamond" | "none";
  colour: string;
  /** Pixels from the top of the chart area. */
  y: number;
  /** For scripts that read the value. */
  hook?: string;
}

const on = (band: Band, scale: Scale, value: number) => band.top + band.height * (1 - Math.min(Math.max(value, 0) / scale.top, 1));
const lastOf = (values: Float64Array | undefined) => values?.at(-1) ?? Number.NaN;
const oneDecimal = (value: number) => (Number.isFinite(value) ? value.toFixed(1) : missing);

export const memoryNames = (scene: Scene, _: PullHeader, place: Layout): Name[] => {
  const [, total = 0, state = 0, others = 0, system = 0] = scene.memory.map(lastOf);
  const line = lastOf(scene.memory.at(-1));
  const layer = (name: string, low: number, high: number, colour: string): Name => ({
    name, value: oneDecimal(high - low), key: "block", colour, y: on(place.memory, scene.scales.memory, (low + high) / 2 || 0),
  });
  return [
    { name: "Budget line", value: oneDecimal(line), key: "dash", colour: "series-budget", y: on(place.memory, scene.scales.memory, line || 0) },
    layer("Ebb activations", state, total, "series-activations"),
    layer("Ebb state", others, state, "series-state"),
    layer("Other apps", system, others, "series-others"),
    layer("System", 0, system, "series-system"),
  ];
};

export const microNames = (scene: Scene, { figures }: PullHeader, place: Layout): Name[] => {
  const y = on(place.micro, scene.scales.micro, figures.micro_batch ?? 0);
  return [
    { name: "Micro-batch", value: count(figures.micro_batch), key: "line", colour: "series-state", y },
    { name: "Pieces a step", value: count(figures.micro_batches), key: "none", colour: "series-state", y: y + 17 },
  ];
};

export const lossNames = (scene: Scene, { figures }: PullHeader, place: Layout): Name[] => {
  const at = (value: number | null) => on(place.loss, scene.scales.loss, value ?? 0);
  return [
    { name: "Evaluation", value: loss(figures.held_out_loss), key: "diamond", colour: "series-evaluation", y: at(figures.held_out_loss) - 2, hook: "held-out-loss" },
    { name: "Smoothed", value: loss(figures.smoothed_loss), key: "line", colour: "series-smoothed", y: at(figures.smoothed_loss), hook: "loss" },
    { name: "Raw", value: loss(figures.loss), key: "thin", colour: "series-raw", y: at(figures.smoothed_loss) + 1, hook: "raw-loss" },
  ];
};
