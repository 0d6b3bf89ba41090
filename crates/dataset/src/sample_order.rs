//! Which samples belong to which step: a function of (seed, length, effective batch), so that any
//! step can be computed without the earlier ones.

use crate::rng::{self, Rng};
use std::collections::VecDeque;
use std::ops::Range;

/// The order of samples over a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Seed of the shuffling.
    pub seed: u64,
    /// Samples per epoch.
    pub len: u32,
    /// Samples per step. The last step of an epoch has the remaining ones.
    pub effective_batch: u32,
}

impl Order {
    /// All samples, shuffled for an epoch. Takes time proportional to `len`.
    pub fn epoch(&self, epoch: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len).collect();
        // The name separates these random numbers from those that augment sample `epoch`.
        let mut rng = Rng::from_key(&[rng::hash_text("order"), self.seed, epoch]);
        rng.shuffle(&mut order);
        order
    }

    /// Steps per epoch: `len / effective_batch`, rounded up.
    pub fn steps_per_epoch(&self) -> u64 {
        u64::from(self.len).div_ceil(u64::from(self.effective_batch.max(1)))
    }

    /// The epoch of a step, and the range of its samples there.
    fn range(&self, step: u64) -> (u64, Range<usize>) {
        let steps = self.steps_per_epoch().max(1);
        let batch = self.effective_batch.max(1) as usize;
        let len = self.len as usize;
        let first = ((step % steps) as usize * batch).min(len);
        (step / steps, first..(first + batch).min(len))
    }

    /// The epoch and the samples of a step. Steps are counted from 0 over the whole run. Takes time
    /// proportional to `len`; use [`CachedOrder`] for consecutive steps.
    pub fn step(&self, step: u64) -> (u64, Vec<u32>) {
        let (epoch, range) = self.range(step);
        (epoch, self.epoch(epoch)[range].to_vec())
    }
}

/// An order that caches the last epochs, so that a step takes time proportional to its samples
/// only.
#[derive(Debug, Clone)]
pub struct CachedOrder {
    order: Order,
    /// The newest epoch is last. There are two, because prefetching reaches the next epoch before
    /// the current step does.
    epochs: VecDeque<(u64, Vec<u32>)>,
}

const CACHED_EPOCHS: usize = 2;

impl CachedOrder {
    /// Caches nothing yet.
    pub fn new(order: Order) -> Self {
        CachedOrder {
            order,
            epochs: VecDeque::with_capacity(CACHED_EPOCHS),
        }
    }

    /// The order without its cache.
    pub fn order(&self) -> Order {
        self.order
    }

    /// See [`Order::step`].
    pub fn step(&mut self, step: u64) -> (u64, &[u32]) {
        let (epoch, range) = self.order.range(step);
        let found = self.epochs.iter().position(|(cached, _)| *cached == epoch);
        let index = found.unwrap_or_else(|| {
            if self.epochs.len() == CACHED_EPOCHS {
                self.epochs.pop_front();
            }
            self.epochs.push_back((epoch, self.order.epoch(epoch)));
            self.epochs.len() - 1
        });
        (epoch, &self.epochs[index].1[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Order = Order {
        seed: 3,
        len: 100,
        effective_batch: 8,
    };

    #[test]
    fn a_cached_order_is_the_same() {
        let mut cached = CachedOrder::new(SMALL);
        let order = SMALL;
        let steps = order.steps_per_epoch();
        for step in 0..4 * steps {
            // With prefetching of one step.
            for asked in [step + 1, step] {
                let (epoch, samples) = order.step(asked);
                assert_eq!(cached.step(asked), (epoch, &samples[..]), "step {asked}");
            }
        }
        assert_eq!(cached.step(1).1, order.step(1).1, "an earlier epoch");
    }

    #[test]
    fn this_epoch_and_the_next_are_shuffled_only_once() {
        let mut cached = CachedOrder::new(SMALL);
        for epoch in 0..4 {
            let first = epoch * SMALL.steps_per_epoch();
            cached.step(first + SMALL.steps_per_epoch());
            cached.step(first);
            // An epoch that is shuffled again loses the mark.
            let mark = |epoch: &mut (u64, Vec<u32>)| epoch.1.fill(u32::MAX);
            cached.epochs.iter_mut().for_each(mark);
            for step in first..first + 2 * SMALL.steps_per_epoch() {
                assert!(cached.step(step).1.iter().all(|sample| *sample == u32::MAX));
            }
            cached.epochs.clear();
        }
    }

    #[test]
    fn an_epoch_has_every_sample_once_in_its_own_order() {
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
    fn steps_cut_the_epoch_in_order() {
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
    fn every_position_is_equally_likely() {
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
    fn an_empty_order_has_no_steps() {
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
