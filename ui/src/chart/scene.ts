// What is drawn: one pull, prepared for three panels. Sums the stack; decides nothing and draws nothing.
import type { AlignedData } from "uplot";
import type { LevelSpan, Mark } from "../types";
import type { Pull } from "../wire";
import type { Colours } from "./colours";
import type { Stretch } from "./span";
import { lossScale, memoryScale, microScale, type Scale } from "./ticks";

export const GB = 2 ** 30;

/** Highest values met since the reader last asked for another view: axes grow, and shrink only on request. */
export interface Tops {
  memory: number;
  micro: number;
  loss: number;
}

export const noTops = (): Tops => ({ memory: 0, micro: 0, loss: 0 });

export interface Scene {
  stretch: Stretch;
  colours: Colours;
  marks: Mark[];
  spans: LevelSpan[];
  /** at; the stack's upper edges in GB: all, to Ebb's state, to other apps, system; the last two again as lines; budget line. */
  memory: Float64Array[];
  micro: Float64Array[];
  /** at, raw, smoothed. */
  loss: (number | null)[][];
  evaluation: { at: Float64Array; loss: Float64Array };
  scales: { memory: Scale; micro: Scale; loss: Scale };
}

export const aligned = (arrays: ArrayLike<number | null>[]) => arrays as unknown as AlignedData;

const highest = (values: ArrayLike<number | null>) => {
  let top = 0;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (value !== null && value !== undefined && value > top && value < Number.POSITIVE_INFINITY) top = value;
  }
  return top;
};

/** A loss that is no number leaves a gap. */
const finite = (values: Float64Array) => Array.from(values, (value) => (Number.isFinite(value) ? value : null));

const stacked = (pull: Pull): Float64Array[] => {
  const bytes = ["system", "others", "state", "activations", "budget"].map((name) => pull.array(`memory.${name}`));
  const [system, others, state, activations, budget] = bytes as [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array];
  const sum = (parts: Float64Array[]) => system.map((_, i) => parts.reduce((total, part) => total + part[i]!, 0) / GB);
  const everybody = [system, others];
  const edges = [sum(everybody), sum([system])];
  return [pull.array("memory.at"), sum([...everybody, state, activations]), sum([...everybody, state]), ...edges, ...edges, sum([budget])];
};

const lossTop = (raw: (number | null)[], smoothed: (number | null)[], evaluation: Float64Array) => {
  const steady = Math.max(highest(smoothed), highest(evaluation));
  return Math.max(steady, Math.min(highest(raw), steady * 1.5)); // one wild step must not flatten the curve
};

export const scene = (pull: Pull, stretch: Stretch, colours: Colours, tops: Tops): Scene => {
  const memory = stacked(pull);
  const micro = [pull.array("micro.at"), pull.array("micro.value")];
  const loss = [Array.from(pull.array("loss.at")), finite(pull.array("loss.raw")), finite(pull.array("loss.smoothed"))];
  const evaluation = { at: pull.array("evaluation.at"), loss: pull.array("evaluation.loss") };
  tops.memory = Math.max(tops.memory, (pull.header.started?.total_bytes ?? 0) / GB, Math.ceil(highest(memory[1]!)));
  tops.micro = Math.max(tops.micro, highest(micro[1]!));
  tops.loss = Math.max(tops.loss, lossTop(loss[1]!, loss[2]!, evaluation.loss));
  const scales = { memory: memoryScale(tops.memory), micro: microScale(tops.micro), loss: lossScale(tops.loss) };
  return { stretch, colours, marks: pull.header.marks, spans: pull.header.spans, memory, micro, loss, evaluation, scales };
};
