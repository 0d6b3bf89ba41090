// What would fit below another budget line, from the peaks of an estimate: an answer while the
// slider moves. The estimate that follows may also recompute activations.
import type { EstimateView, MachineView } from "../types";

export interface Fit {
  microBatch: number;
  peakBytes: number;
}

/** The largest micro-batch below the line; `null` if not even the smallest fits. */
export const largestFit = (estimate: EstimateView, machine: MachineView, lineBytes: number): Fit | null => {
  const budget = lineBytes - machine.system_bytes - machine.others_bytes;
  const fitting = estimate.peaks.filter(([, peak]) => peak <= budget).sort((a, b) => b[0] - a[0])[0];
  return fitting ? { microBatch: fitting[0], peakBytes: fitting[1] } : null;
};

/** The estimate as it would be below another line. */
export const fitBelowBudget = (estimate: EstimateView, machine: MachineView, lineBytes: number, effectiveBatch: number): EstimateView => {
  const fit = largestFit(estimate, machine, lineBytes);
  if (!fit) {
    const available_bytes = Math.max(0, lineBytes - machine.system_bytes - machine.others_bytes);
    const needed_bytes = Math.min(...estimate.peaks.map(([, peak]) => peak));
    return { ...estimate, micro_batch: 0, activations_bytes: 0, peak_bytes: estimate.state_bytes, refusal: { needed_bytes, available_bytes } };
  }
  const microBatch = Math.min(fit.microBatch, effectiveBatch);
  return {
    ...estimate, micro_batch: microBatch, accumulation: Math.ceil(effectiveBatch / microBatch), peak_bytes: fit.peakBytes,
    activations_bytes: Math.max(0, fit.peakBytes - estimate.state_bytes), refusal: null,
  };
};
