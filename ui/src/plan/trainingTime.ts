// The training time of a plan by the size of its micro-batch. It is measured with a small
// micro-batch and with a single sample: each micro-batch takes a fixed time, and each of its samples
// another one.

/** A micro-batch of so many samples is measured at most, as in src-tauri/plan_page.rs. */
const MOST_MEASURED = 4;

export interface EpochTime {
  /** Seconds per epoch for each sample of a micro-batch. */
  samples: number;
  /** Seconds per epoch for the micro-batches, if each has one sample. */
  microBatches: number;
}

/** `seconds` of an epoch were measured for the micro-batch of the plan, `single` for one sample;
 * `null` if that was not measured. */
export const epochTime = (microBatch: number, seconds: number, single: number | null): EpochTime => {
  const size = Math.min(microBatch, MOST_MEASURED);
  // On a GPU, both are the time of an earlier run.
  if (single === null || size === 1 || single <= seconds) return { samples: seconds, microBatches: 0 };
  const microBatches = (single - seconds) / (1 - 1 / size);
  return { samples: Math.max(0, single - microBatches), microBatches };
};

/** Seconds per epoch with micro-batches of this size. */
export const epochSecondsWith = ({ samples, microBatches }: EpochTime, microBatch: number) => samples + microBatches / Math.max(1, microBatch);
