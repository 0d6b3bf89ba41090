//! An order of samples that puts similar lengths into one effective batch, so that little is
//! padded. It depends only on (seed, epoch, lengths, effective batch), never on the micro-batches.

use crate::rng::{self, Rng};

/// Largest ratio of two lengths in one bucket.
const BUCKET_RATIO: f64 = 1.25;

/// The order of samples over a run, in batches of similar lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    seed: u64,
    effective_batch: usize,
    lengths: Vec<u32>,
    /// Samples by bucket, the shortest bucket first.
    buckets: Vec<Vec<u32>>,
}

impl Buckets {
    /// Sorts samples into buckets by their lengths, in tokens.
    pub fn new(seed: u64, effective_batch: u32, lengths: Vec<u32>) -> Self {
        let mut buckets: Vec<Vec<u32>> = Vec::new();
        for (sample, length) in lengths.iter().enumerate() {
            let bucket = (f64::from((*length).max(1)).ln() / BUCKET_RATIO.ln()) as usize;
            buckets.resize(buckets.len().max(bucket + 1), Vec::new());
            buckets[bucket].push(sample as u32);
        }
        buckets.retain(|bucket| !bucket.is_empty());
        Self {
            seed,
            effective_batch: effective_batch.max(1) as usize,
            lengths,
            buckets,
        }
    }

    /// Steps per epoch: samples divided by the effective batch, rounded up.
    pub fn steps_per_epoch(&self) -> u64 {
        self.lengths.len().div_ceil(self.effective_batch) as u64
    }

    /// All samples in the order of an epoch: its batches one after the other, the short one last.
    pub fn epoch(&self, epoch: u64) -> Vec<u32> {
        let mut rng = Rng::from_key(&[rng::hash_text("buckets"), self.seed, epoch]);
        let mut order: Vec<u32> = Vec::with_capacity(self.lengths.len());
        for bucket in &self.buckets {
            let first = order.len();
            order.extend(bucket);
            rng.shuffle(&mut order[first..]);
        }
        // The short batch comes from a random position, so that no length is underrepresented in
        // full batches.
        let short = order.len() % self.effective_batch;
        let from = rng.below((order.len() - short) as u64 + 1) as usize;
        let last: Vec<u32> = order.drain(from..from + short).collect();
        let mut batches: Vec<&[u32]> = order.chunks(self.effective_batch).collect();
        rng.shuffle(&mut batches);
        batches.push(&last);
        let mut sorted = Vec::with_capacity(self.lengths.len());
        for batch in batches {
            let first = sorted.len();
            sorted.extend(batch);
            // The longest first, so that a step that does not fit fails at its first micro-batch.
            sorted[first..].sort_by_key(|sample| std::cmp::Reverse(self.lengths[*sample as usize]));
        }
        sorted
    }

    /// The epoch and the samples of a step. Steps are counted from 0 over the whole run.
    pub fn step(&self, step: u64) -> (u64, Vec<u32>) {
        let steps = self.steps_per_epoch().max(1);
        let first = (step % steps) as usize * self.effective_batch;
        let epoch = step / steps;
        let order = self.epoch(epoch).into_iter().skip(first);
        (epoch, order.take(self.effective_batch).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(seed: u64, n: usize) -> Vec<u32> {
        let mut rng = Rng::from_key(&[seed]);
        // Long-tailed, like the lengths of texts.
        (0..n)
            .map(|_| (4.0 * (4.0 * rng.uniform()).exp()) as u32)
            .collect()
    }

    #[test]
    fn every_epoch_has_every_sample_once() {
        for seed in 0..40 {
            for (n, batch) in [
                (0, 8),
                (1, 8),
                (7, 8),
                (8, 8),
                (9, 8),
                (500, 32),
                (333, 1),
                (64, 1000),
            ] {
                let order = Buckets::new(seed, batch, lengths(seed, n));
                let mut found = order.epoch(seed);
                found.sort_unstable();
                assert_eq!(found, (0..n as u32).collect::<Vec<_>>(), "{n} by {batch}");
                assert_eq!(
                    order.steps_per_epoch(),
                    (n as u64).div_ceil(u64::from(batch))
                );
            }
        }
    }

    #[test]
    fn steps_and_micro_batches_cut_the_epoch_in_order() {
        for seed in 0..20 {
            let order = Buckets::new(seed, 32, lengths(seed, 333));
            let steps = order.steps_per_epoch();
            let mut rng = Rng::from_key(&[seed, 9]);
            let mut joined: Vec<u32> = Vec::new();
            for step in 2 * steps..3 * steps {
                let (epoch, batch) = order.step(step);
                assert_eq!(epoch, 2);
                // Micro-batches of any sizes have the samples of the step together.
                let mut rest = batch.as_slice();
                while !rest.is_empty() {
                    let size = 1 + rng.below(rest.len() as u64) as usize;
                    let (micro_batch, others) = rest.split_at(size);
                    joined.extend(micro_batch);
                    rest = others;
                }
                assert_eq!(order.step(step).1, batch, "a step can be repeated");
            }
            assert_eq!(joined, order.epoch(2));
        }
    }

    #[test]
    fn batches_of_similar_lengths_need_little_padding() {
        let lengths = lengths(5, 4000);
        let order = Buckets::new(1, 32, lengths.clone());
        let padded = |samples: &[u32]| {
            let of = |batch: &[u32]| {
                let longest = batch
                    .iter()
                    .map(|s| lengths[*s as usize])
                    .max()
                    .unwrap_or(0);
                u64::from(longest) * batch.len() as u64
            };
            samples.chunks(32).map(of).sum::<u64>() as f64
        };
        let real = lengths.iter().map(|l| u64::from(*l)).sum::<u64>() as f64;
        let plain: Vec<u32> = (0..4000).collect();
        assert!(
            padded(&plain) / real > 2.0,
            "without buckets {}",
            padded(&plain) / real
        );
        assert!(
            padded(&order.epoch(0)) / real < 1.2,
            "{}",
            padded(&order.epoch(0)) / real
        );
    }

    #[test]
    fn epochs_have_different_batches() {
        let order = Buckets::new(1, 16, lengths(2, 400));
        assert_ne!(order.epoch(0), order.epoch(1));
        assert_eq!(order.epoch(3), order.epoch(3));
        let set = |epoch: u64| {
            let mut batch = order.epoch(epoch)[..16].to_vec();
            batch.sort_unstable();
            batch
        };
        assert_ne!(set(0), set(1));
        assert_ne!(
            Buckets::new(2, 16, lengths(2, 400)).epoch(0),
            order.epoch(0)
        );
    }
}
