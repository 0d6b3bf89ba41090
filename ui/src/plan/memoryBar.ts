// The parts of the memory bar and the positions of their names. Bytes in, pixels out.
import { count } from "../format";
import { t, type Label } from "../strings/t";
import type { EstimateView, MachineView } from "../types";

export interface Part {
  name: Label;
  bytes: number;
  fill: string;
}

export const parts = (lineBytes: number, estimate: EstimateView | null, machine: MachineView): Part[] => {
  const [state, activations] = [estimate?.state_bytes ?? 0, estimate?.activations_bytes ?? 0];
  const ebb = state + activations;
  const free = lineBytes - machine.system_bytes - machine.others_bytes - ebb;
  const all: Part[] = [
    { name: "System", bytes: machine.system_bytes, fill: "var(--series-system)" },
    { name: "Other apps", bytes: machine.others_bytes, fill: "var(--series-others)" },
    { name: "Ebb state", bytes: state, fill: "var(--series-state)" },
    { name: "Ebb activations", bytes: activations, fill: "var(--series-activations)" },
    { name: "Free", bytes: Math.max(0, free), fill: "var(--series-free)" },
    { name: "Reserve", bytes: Math.max(0, machine.total_bytes - lineBytes + Math.min(0, free)), fill: "url(#hatch)" },
  ];
  return all.filter((part) => part.bytes > 0);
};

export interface Placed extends Part {
  left: number;
  width: number;
  /** Left edge of the name; `null` if there is no space for it. */
  text: number | null;
}

const nameWidth = (name: string) => Math.max(46, name.length * 5.8);

/** Bytes that are shown as 0.0 GB. */
const NOTHING = 0.05 * 2 ** 30;

/** Parts from the left. A name moves right so as not to overlap the one before it, or the budget
 * line at `line`; one that would pass the end of the bar is left out, and so is a part of 0.0 GB. */
export const place = (all: Part[], totalBytes: number, width: number, line = -Infinity): Placed[] => {
  let left = 0;
  let taken = -8;
  return all.map((part) => {
    // What does not fit would extend beyond the bar.
    const share = Math.min((part.bytes / totalBytes) * width, Math.max(0, width - left));
    const free = Math.max(left + (part.name === "Reserve" ? 7 : 0), taken + 8);
    const crosses = free < line + 6 && free + nameWidth(t(part.name)) > line - 6;
    const wanted = crosses ? line + 7 : free;
    const fits = part.bytes >= NOTHING && wanted + nameWidth(t(part.name)) <= width + 4 && (wanted < left + share || part.name !== "Free");
    const placed = { ...part, left, width: share, text: fits ? wanted : null };
    left += share;
    if (fits) taken = wanted + nameWidth(t(part.name));
    return placed;
  });
};

/** "× 4 per step". */
export const perStep = (accumulation: number) => t("× {n} per step", { n: count(accumulation) });
