//! Steps of at most a number of tokens. Ebb distributes the samples over the steps once, so every
//! epoch has the same steps and the schedule knows how many. Each epoch trains them in a new order,
//! which depends only on (seed, epoch, lengths, tokens per step), never on the micro-batches.

use crate::rng::{self, Rng};
use std::cmp::Reverse;
use std::ops::Range;

/// The samples of each step of a run, if a step is limited by its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBatches {
    seed: u64,
    /// The samples of all batches, one batch after the other.
    samples: Vec<u32>,
    /// The range of each batch in `samples`.
    batches: Vec<Range<usize>>,
    /// The epoch of the last step, and the order of its batches.
    order: Option<(u64, Vec<u32>)>,
}

impl TokenBatches {
    /// Distributes samples with these numbers of tokens over batches of at most `most` tokens. A
    /// longer sample has a batch of its own. With `by_length`, the samples of a batch have similar
    /// lengths, and the longest one is first.
    pub fn new(seed: u64, most: u32, tokens: &[u32], by_length: bool) -> Self {
        let mut samples: Vec<u32> = (0..tokens.len() as u32).collect();
        Rng::from_key(&[rng::hash_text("token batches"), seed]).shuffle(&mut samples);
        let length = |sample: &u32| tokens[*sample as usize];
        if by_length {
            samples.sort_by_key(|sample| Reverse(length(sample)));
        }
        TokenBatches {
            seed,
            batches: cut(&samples, most, length),
            samples,
            order: None,
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Steps per epoch: the number of batches.
    pub fn steps_per_epoch(&self) -> u64 {
        self.batches.len() as u64
    }

    /// The epoch and the samples of a step. Steps are counted from 0 over the whole run.
    pub fn step(&mut self, step: u64) -> (u64, &[u32]) {
        let steps = self.steps_per_epoch().max(1);
        let epoch = step / steps;
        let cached = self.order.take().filter(|(of, _)| *of == epoch);
        let (_, order) = self.order.insert(match cached {
            Some(known) => known,
            None => (epoch, order(self.seed, epoch, steps as u32)),
        });
        let batch = self.batches.get(order[(step % steps) as usize] as usize);
        (
            epoch,
            batch.map_or(&[], |batch| &self.samples[batch.clone()]),
        )
    }
}

/// The order of the batches in an epoch.
fn order(seed: u64, epoch: u64, batches: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..batches).collect();
    Rng::from_key(&[rng::hash_text("order of token batches"), seed, epoch]).shuffle(&mut order);
    order
}

/// Ends each batch before the sample with which it would have more than `most` tokens.
fn cut(samples: &[u32], most: u32, length: impl Fn(&u32) -> u32) -> Vec<Range<usize>> {
    let (mut batches, mut first, mut filled) = (Vec::new(), 0, 0);
    for (place, sample) in samples.iter().enumerate() {
        let tokens = u64::from(length(sample));
        if place > first && filled + tokens > u64::from(most) {
            batches.push(first..place);
            (first, filled) = (place, 0);
        }
        filled += tokens;
    }
    if first < samples.len() {
        batches.push(first..samples.len());
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long-tailed lengths, like those of conversations.
    fn lengths(seed: u64, n: usize) -> Vec<u32> {
        let mut rng = Rng::from_key(&[seed]);
        (0..n)
            .map(|_| (4.0 * (4.0 * rng.uniform()).exp()) as u32)
            .collect()
    }

    fn steps(batches: &mut TokenBatches, steps: Range<u64>) -> Vec<Vec<u32>> {
        steps.map(|step| batches.step(step).1.to_vec()).collect()
    }

    #[test]
    fn an_epoch_has_every_sample_once_in_steps_of_at_most_the_tokens() {
        for (seed, by_length) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
            for (n, most) in [(0, 100), (1, 100), (500, 300), (333, 1), (64, 1_000_000)] {
                let lengths = lengths(seed, n);
                let mut batches = TokenBatches::new(seed, most, &lengths, by_length);
                let per_epoch = batches.steps_per_epoch();
                for epoch in 0..3 {
                    let found = steps(&mut batches, epoch * per_epoch..(epoch + 1) * per_epoch);
                    for step in &found {
                        let tokens = step.iter().map(|sample| lengths[*sample as usize]);
                        assert!(tokens.sum::<u32>() <= most || step.len() == 1);
                    }
                    let mut all = found.concat();
                    all.sort_unstable();
                    assert_eq!(all, (0..n as u32).collect::<Vec<_>>(), "{n} by {most}");
                }
            }
        }
    }

    #[test]
    fn a_sample_longer_than_a_step_is_alone_in_it() {
        for by_length in [false, true] {
            for seed in 0..20 {
                let lengths = [30, 20, 500, 10, 101, 40];
                let mut batches = TokenBatches::new(seed, 100, &lengths, by_length);
                let per_epoch = batches.steps_per_epoch();
                let found = steps(&mut batches, 0..per_epoch);
                assert!(
                    found.contains(&vec![2]) && found.contains(&vec![4]),
                    "{found:?}"
                );
            }
        }
    }

    #[test]
    fn a_step_takes_as_many_samples_as_fit() {
        let lengths = lengths(3, 400);
        let mut batches = TokenBatches::new(3, 300, &lengths, false);
        let per_epoch = batches.steps_per_epoch() as usize;
        let cut = batches.batches.clone();
        assert_eq!(per_epoch, cut.len());
        let of = |range: Range<usize>| -> u32 {
            let samples = batches.samples[range].iter();
            samples.map(|sample| lengths[*sample as usize]).sum()
        };
        for pair in cut.windows(2) {
            let with_next = pair[0].start..pair[1].start + 1;
            assert!(of(with_next) > 300, "the next sample does not fit");
        }
        // Samples of equal length: the count follows from the tokens.
        batches = TokenBatches::new(3, 300, &[64; 10], false);
        let counts: Vec<usize> = batches.batches.iter().map(ExactSizeIterator::len).collect();
        assert_eq!(counts, [4, 4, 2]);
    }

    #[test]
    fn a_step_depends_on_the_seed_and_its_number_alone() {
        let lengths = lengths(5, 300);
        let new = |seed| TokenBatches::new(seed, 400, &lengths, true);
        let mut whole = new(1);
        let per_epoch = whole.steps_per_epoch();
        let all = steps(&mut whole, 0..3 * per_epoch);
        for step in (0..3 * per_epoch).rev() {
            // As after a resume, and after a step that is repeated.
            let mut resumed = new(1);
            assert_eq!(resumed.step(step), (step / per_epoch, &*all[step as usize]));
            assert_eq!(whole.step(step).1, all[step as usize]);
        }
        let (first, second) = all.split_at(per_epoch as usize);
        assert_ne!(
            first,
            &second[..first.len()],
            "epochs have different orders"
        );
        assert_ne!(steps(&mut new(2), 0..per_epoch), first);
    }

    #[test]
    fn steps_of_similar_lengths_need_little_padding() {
        let lengths = lengths(5, 4000);
        let padded = |by_length| {
            let mut batches = TokenBatches::new(1, 2048, &lengths, by_length);
            let per_epoch = batches.steps_per_epoch();
            let padded = |step: &Vec<u32>| {
                let longest = step.iter().map(|sample| lengths[*sample as usize]).max();
                u64::from(longest.unwrap_or(0)) * step.len() as u64
            };
            let steps = steps(&mut batches, 0..per_epoch);
            steps.iter().map(padded).sum::<u64>() as f64
        };
        let real = lengths.iter().map(|l| u64::from(*l)).sum::<u64>() as f64;
        let (on, off) = (padded(true) / real, padded(false) / real);
        assert!(on < 1.1 && off > 2.0, "{on} by length, {off} in any order");
    }
}
