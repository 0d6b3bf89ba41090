//! Which samples stand in which step: a function of (seed, length, effective batch), so that any step can be had without
//! running the earlier ones. Knows nothing of pieces.

use crate::stream::{self, Stream};
use std::collections::VecDeque;

/// The order of samples over a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Seed of the shuffling.
    pub seed: u64,
    /// Samples an epoch.
    pub len: u32,
    /// Samples a step; the last step of an epoch takes what is left.
    pub effective_batch: u32,
}

impl Order {
    /// All samples once, shuffled for this epoch. Costs a pass over `len`.
    pub fn epoch(&self, epoch: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len).collect();
        // The name keeps this stream apart from the one that varies sample `epoch`.
        let mut stream = Stream::keyed(&[stream::name("order"), self.seed, epoch]);
        for last in (1..order.len()).rev() {
            order.swap(last, stream.below(last as u64 + 1) as usize);
        }
        order
    }

    /// Steps an epoch: `len / effective_batch`, rounded up.
    pub fn steps_per_epoch(&self) -> u64 {
        u64::from(self.len).div_ceil(u64::from(self.effective_batch.max(1)))
    }

    /// The epoch of a step, the place of its first sample there, and samples a step.
    fn place(&self, step: u64) -> (u64, usize, usize) {
        let steps = self.steps_per_epoch().max(1);
        let batch = self.effective_batch.max(1) as usize;
        (step / steps, (step % steps) as usize * batch, batch)
    }

    /// The epoch and the samples of a step, counted from 0 over the whole run. Costs a pass over `len`; [`KeptOrder`] is for
    /// steps in turn.
    pub fn step(&self, step: u64) -> (u64, Vec<u32>) {
        let (epoch, first, batch) = self.place(step);
        (
            epoch,
            self.epoch(epoch)
                .into_iter()
                .skip(first)
                .take(batch)
                .collect(),
        )
    }
}

/// An order that keeps the epochs that were asked for last, so that a step costs its samples and not its epoch's.
#[derive(Debug, Clone)]
pub struct KeptOrder {
    order: Order,
    /// The newest behind; two, since whoever works ahead crosses into the next epoch before the step at work does.
    epochs: VecDeque<(u64, Vec<u32>)>,
    shuffles: u64,
}

/// Epochs kept.
const KEPT: usize = 2;

impl KeptOrder {
    /// Nothing asked for yet.
    pub fn new(order: Order) -> Self {
        KeptOrder {
            order,
            epochs: VecDeque::with_capacity(KEPT),
            shuffles: 0,
        }
    }

    /// The order itself.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Passes over all samples so far: one an epoch where steps are asked for in turn.
    pub fn shuffles(&self) -> u64 {
        self.shuffles
    }

    /// As [`Order::step`].
    pub fn step(&mut self, step: u64) -> (u64, &[u32]) {
        let (epoch, first, batch) = self.order.place(step);
        let found = self.epochs.iter().position(|(kept, _)| *kept == epoch);
        let place = found.unwrap_or_else(|| {
            if self.epochs.len() == KEPT {
                self.epochs.pop_front();
            }
            self.epochs.push_back((epoch, self.order.epoch(epoch)));
            self.shuffles += 1;
            self.epochs.len() - 1
        });
        let samples = &self.epochs[place].1;
        let end = (first + batch).min(samples.len());
        (epoch, &samples[first.min(end)..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_order_is_the_same_and_shuffles_once_an_epoch() {
        let order = Order {
            seed: 3,
            len: 100,
            effective_batch: 8,
        };
        let mut kept = KeptOrder::new(order);
        let steps = order.steps_per_epoch();
        for step in 0..4 * steps {
            // As whoever works one step ahead asks.
            for asked in [step + 1, step] {
                let (epoch, samples) = order.step(asked);
                assert_eq!(kept.step(asked), (epoch, &samples[..]), "step {asked}");
            }
        }
        assert_eq!(kept.shuffles(), 5, "of epochs 0 to 4");
        assert_eq!(kept.step(1).1, order.step(1).1, "back again");
    }

    #[test]
    fn an_epoch_holds_every_sample_once_in_its_own_order() {
        let order = Order {
            seed: 7,
            len: 500,
            effective_batch: 64,
        };
        let mut sorted = order.epoch(3);
        assert_ne!(sorted, order.epoch(4));
        assert_ne!(sorted, Order { seed: 8, ..order }.epoch(3));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn the_steps_of_an_epoch_are_the_epoch_cut_in_order() {
        for (len, batch) in [(500, 64), (64, 64), (1, 64), (65, 64), (10, 1)] {
            let order = Order {
                seed: 1,
                len,
                effective_batch: batch,
            };
            let steps = order.steps_per_epoch();
            let joined: Vec<u32> = (2 * steps..3 * steps)
                .flat_map(|step| order.step(step).1)
                .collect();
            assert_eq!(joined, order.epoch(2), "{len} by {batch}");
            assert!((2 * steps..3 * steps).all(|step| order.step(step).0 == 2));
        }
        let last = Order {
            seed: 1,
            len: 500,
            effective_batch: 64,
        }
        .step(7)
        .1;
        assert_eq!(last.len(), 500 - 7 * 64, "the last batch is short");
    }

    #[test]
    fn every_place_is_equally_likely() {
        let order = Order {
            seed: 2,
            len: 5,
            effective_batch: 5,
        };
        let first_in_front = (0..10_000)
            .filter(|epoch| order.epoch(*epoch)[0] == 0)
            .count();
        assert!(first_in_front.abs_diff(2_000) < 150, "{first_in_front}");
    }

    #[test]
    fn no_samples_make_no_steps() {
        let order = Order {
            seed: 1,
            len: 0,
            effective_batch: 8,
        };
        assert_eq!(
            (order.steps_per_epoch(), order.step(5)),
            (0, (5, Vec::new()))
        );
    }
}
