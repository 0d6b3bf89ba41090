// Two machines that train the recorded run together, as a stand-in: the recorded run has one.
import type { GroupView } from "../../types";

const GB = 2 ** 30;
const member = (rank: number, host: string, total: number) => ({ rank, host, device: "cpu", threads: 8, total_bytes: total * GB });
const share = { samples: 40, busy_ms: 930, wait_ms: 70, exchange_ms: 40, peak_bytes: 0, others_bytes: 0, level: "normal", is_suspended: false } as const;

export const machines: GroupView = {
  ranks: [
    { member: member(0, "studio", 64), last: { ...share, rank: 0, micro_batch: 16, own_bytes: 6.1 * GB, budget_bytes: 31 * GB }, share: 0.81, times: { working: 0.93, waiting: 0.03, exchange: 0.04 }, samples: 7_410 },
    { member: member(1, "air", 16), last: { ...share, rank: 1, level: "warning", micro_batch: 2, own_bytes: 2.3 * GB, budget_bytes: 2.6 * GB }, share: 0.19, times: { working: 0.71, waiting: 0.25, exchange: 0.04 }, samples: 1_806 },
    { member: member(2, "mini", 8), last: { ...share, rank: 2, level: "critical", is_suspended: true, micro_batch: 0, own_bytes: 0.2 * GB, budget_bytes: 0.3 * GB }, share: 0, times: { working: 0, waiting: 0.96, exchange: 0.04 }, samples: 400 },
  ],
  changes: [
    { at_ms: 0, step: 0, message: "Training on 3 machines: studio (rank 0), air (rank 1), mini (rank 2)" },
    { at_ms: 128_000, step: 61, message: "rank 1 (air): Micro-batch reduced from 8 to 2: another app took 2.9 GB in 18 s" },
    { at_ms: 164_000, step: 78, message: "rank 2 (mini) has freed its weights, because its memory is short" },
  ],
};

/** When other apps took memory of air, and when mini freed its weights. */
const [pressedMs, freedMs] = [128_000, 164_000];

/** The memory of a rank over time: that of the recorded run, as large as this rank's. */
export const machineArrays = (arrays: Record<string, number[]>, rank: number): [string, number[]][] => {
  const { member, last } = machines.ranks.find(({ member }) => member.rank === rank)!;
  const of = (name: string, i: number) => arrays[`memory.${name}`]![i]!;
  const at = arrays["memory.at"]!;
  const own = at.map((_, i) => of("state", i) + of("activations", i) + of("cached", i));
  const highest = Math.max(...own, 1);
  const isShort = (ms: number) => (rank === 1 && ms >= pressedMs) || (rank === 2 && ms >= freedMs);
  /** How much more Ebb uses while memory is free. */
  const more = [1, 1.8, 8][rank]!;
  const ebb = at.map((ms, i) => (isShort(ms) ? 1 : more) * last.own_bytes * (own[i]! / highest));
  const others = at.map((ms, i) => (isShort(ms) ? 0.72 : 0.4) * member.total_bytes * (0.9 + (0.1 * of("others", i)) / (of("others", 0) || 1)));
  const budget = at.map((ms, i) => others[i]! + (isShort(ms) ? 1 : 1.2 * more) * last.budget_bytes);
  return [["machine.at", at], ["machine.ebb", ebb], ["machine.others", others], ["machine.budget", budget]];
};
