//! The loaders of training and held-out samples.

use crate::data::{EvalLoader, PrefetchOptions, TrainLoader};
use crate::plan::Plan;
use crate::task::Task;
use pressure::{Phase, Prefetch};

/// Both loaders of a run.
pub struct Loaders<T: Task> {
    /// Training samples, step by step.
    pub train: T::TrainLoader,
    /// Held-out samples, in a fixed order.
    pub held_out: T::EvalLoader,
}

impl<T: Task> Loaders<T> {
    /// Opens both. Training samples are delivered from `step` on.
    pub fn new(plan: &Plan, data: &T::Data, ahead: PrefetchOptions, step: u64) -> Self {
        Loaders {
            train: T::train_loader(plan, data, ahead, step),
            held_out: T::eval_loader(plan, data, ahead),
        }
    }

    /// Cost of one of the next samples in pixels or tokens; `usual` if all samples cost the same.
    pub fn sample_cost(&self, phase: Phase, usual: u64) -> u64 {
        match phase {
            Phase::Train => self.train.sample_cost(usual),
            Phase::Evaluate => self.held_out.sample_cost(usual),
        }
    }

    /// Costs of the last `remaining` samples in pixels or tokens, in their order; `None` if all
    /// count as [`Loaders::sample_cost`].
    pub fn sample_costs(&self, phase: Phase, remaining: usize) -> Option<Vec<u64>> {
        match phase {
            Phase::Train => self.train.sample_costs(remaining),
            Phase::Evaluate => None,
        }
    }

    /// Bytes in use that a shorter prefetch would free.
    pub fn prefetched_bytes(&self) -> u64 {
        self.train.spare_bytes() + self.held_out.spare_bytes()
    }

    /// Sets how many samples are decoded ahead.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.train.set_prefetch(prefetch);
        self.held_out.set_prefetch(prefetch);
    }

    /// Frees cached images.
    pub fn release(&self) {
        self.train.release();
        self.held_out.release();
    }
}
