// The settings of a chat as they are typed, and as numbers.
import { typedDecimal } from "../strings/t";
import type { Sampling } from "./conversation.svelte";

export const typedSampling = { system: "", tokens: "512", temperature: "0.8", top_k: "", top_p: "", min_p: "", repetition_penalty: "1", stop: "", seed: "7" };
export type TypedSampling = typeof typedSampling;

/** Least and most of each number, as in the program. */
const ranges = { temperature: [0, 10], tokens: [1, 100_000], top_k: [1, 1_000_000], top_p: [0, 1], min_p: [0, 1], repetition_penalty: [1, 10], seed: [0, 2 ** 32 - 1] } as const;
const whole = ["tokens", "top_k", "seed"];
const optional = ["top_k", "top_p", "min_p"];

/** A field without a number that it can have. */
export interface WrongField {
  field: keyof typeof ranges;
  least: number;
  most: number;
}

/** The settings, or the first field that is wrong. An empty field that may be empty is not used. */
export const parseSampling = (typed: TypedSampling): Sampling | WrongField => {
  const found: Partial<Record<keyof typeof ranges, number | null>> = {};
  for (const [key, [least, most]] of Object.entries(ranges)) {
    const field = key as keyof typeof ranges;
    const text = typed[field].trim();
    const value = text === "" ? NaN : Number(typedDecimal(text));
    if (text === "" && optional.includes(field)) found[field] = null;
    else if (!(value >= least && value <= most) || (whole.includes(field) && !Number.isInteger(value))) return { field, least, most };
    else found[field] = value;
  }
  const { top_k = null, top_p = null, min_p = null } = found;
  const numbers = { tokens: found.tokens!, temperature: found.temperature!, repetition_penalty: found.repetition_penalty!, seed: found.seed! };
  return { system: typed.system, ...numbers, top_k, top_p, min_p, stop: typed.stop === "" ? [] : [typed.stop] };
};
