//! One effective batch, processed in micro-batches of any sizes. Sums are added over micro-batches
//! and divided once, so no split changes the mean. Gradients in half precision are added in f32.

use crate::error::Result;
use crate::pending_samples::SampleQueue;
use crate::task::{ImageSample, MetricSums, MicroBatchResult};
use candle_core::Tensor;
use tape::inplace::add_assign_all;
use tape::widened;

/// The samples still to be processed, and the sums so far.
pub struct EffectiveBatch<S = ImageSample> {
    /// Samples still to be processed.
    pub pending: SampleQueue<S>,
    sums: BatchSums,
}

/// Sums over micro-batches, not yet divided.
#[derive(Default)]
pub(crate) struct BatchSums {
    /// Summed gradients, one per parameter, in f32 or f64; `None` before the first micro-batch.
    pub(crate) gradients: Option<Vec<Tensor>>,
    pub(crate) loss: f64,
    pub(crate) weight: f64,
    pub(crate) micro_batches: Vec<u32>,
    pub(crate) checkpoint_blocks: Vec<u32>,
    pub(crate) not_finite: Vec<u32>,
    pub(crate) metrics: MetricSums,
}

impl BatchSums {
    /// The sums of a complete effective batch; `None` if not a single sample could be read.
    pub(crate) fn finish(self) -> Option<AccumulatedBatch> {
        let gradients = self.gradients?;
        Some(AccumulatedBatch {
            gradients,
            loss: self.loss / self.weight,
            weight: self.weight,
            micro_batches: self.micro_batches,
            checkpoint_blocks: self.checkpoint_blocks,
            not_finite: self.not_finite,
            metrics: self.metrics,
        })
    }
}

/// The sums of a complete effective batch.
pub struct AccumulatedBatch {
    /// Summed gradients, one per parameter, in f32 or f64, times the loss factor; empty after
    /// [`AccumulatedBatch::free_gradients`].
    pub gradients: Vec<Tensor>,
    /// Mean loss.
    pub loss: f64,
    /// What the summed gradients are divided by.
    pub weight: f64,
    /// Size of each micro-batch, in order.
    pub micro_batches: Vec<u32>,
    /// Number of checkpointed blocks of each micro-batch, if recorded.
    pub checkpoint_blocks: Vec<u32>,
    /// Dataset indices of samples whose own loss is not finite.
    pub not_finite: Vec<u32>,
    /// Sums of the task's further metrics.
    pub metrics: MetricSums,
}

impl AccumulatedBatch {
    /// Number of samples.
    pub fn samples(&self) -> u32 {
        self.micro_batches.iter().sum()
    }

    /// Frees the gradients, also while the device still reads them: it uses their memory for later
    /// work only. Freeing them takes the host some time, one after the other, so call this while
    /// the device updates the weights, before the wait for the update.
    pub fn free_gradients(&mut self) {
        self.gradients = Vec::new();
    }

    /// The sample that made the loss non-finite: the first of several. If every loss is non-finite,
    /// no sample is to blame.
    pub fn offending_sample(&self) -> Option<u32> {
        let some = self.not_finite.len() < self.samples() as usize;
        self.not_finite.first().copied().filter(|_| some)
    }
}

impl Default for EffectiveBatch {
    fn default() -> Self {
        EffectiveBatch::new(0)
    }
}

impl<S> EffectiveBatch<S> {
    /// An empty batch for `samples` samples.
    pub fn new(samples: usize) -> Self {
        EffectiveBatch {
            pending: SampleQueue::new(samples),
            sums: BatchSums::default(),
        }
    }

    /// Number of micro-batches added so far.
    pub fn micro_batches(&self) -> usize {
        self.sums.micro_batches.len()
    }

    /// Records the number of checkpointed blocks of the newest micro-batch.
    pub(crate) fn record_checkpoint_blocks(&mut self, blocks: u32) {
        self.sums.checkpoint_blocks.push(blocks);
    }

    /// Adds a micro-batch that the device has confirmed.
    ///
    /// # Errors
    /// The device could not add the gradients; the effective batch must be started again.
    pub fn add(&mut self, result: MicroBatchResult) -> Result<()> {
        let sums = &mut self.sums;
        match &mut sums.gradients {
            None => {
                // One after the other: each half-precision gradient is freed once its f32 copy
                // exists.
                let widened = result.gradients.into_iter().map(|g| widened(&g));
                sums.gradients = Some(widened.collect::<std::result::Result<_, _>>()?);
            }
            Some(gradients) => {
                add_assign_all(gradients, &result.gradients)?;
            }
        }
        sums.loss += result.loss;
        sums.weight += result.weight;
        sums.micro_batches.push(result.samples as u32);
        sums.not_finite.extend(result.not_finite);
        sums.metrics.add(&result.metrics);
        self.pending.done(result.samples);
        Ok(())
    }

    /// The sums, once no sample remains; `None` if not a single sample could be read.
    pub fn finish(self) -> Option<AccumulatedBatch> {
        self.sums.finish()
    }

    /// The sums so far, to be added to those of other ranks.
    pub(crate) fn into_sums(self) -> BatchSums {
        self.sums
    }
}
