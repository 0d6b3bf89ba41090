//! What the exchange of gradients in bf16 has taken away from this rank: it is added to the
//! gradients of the next step (error feedback, Karimireddy et al. 2019), so that no gradient is
//! lost in the long run.
//!
//! Checkpoints do not contain the errors. All ranks therefore drop them in the step after a
//! checkpoint, and a run that is resumed from this checkpoint continues in the same way as a run
//! that was not interrupted.

use super::RunGroup;
use crate::error::Result;
use distributed::RoundedSum;

/// The rounding errors of one rank. They need 4 bytes per parameter from the first exchange on.
#[derive(Debug, Default)]
pub(crate) struct RoundingErrors {
    /// By bucket, in the order in which buckets are summed. Empty if nothing has been rounded.
    buckets: Vec<Vec<f32>>,
    /// What the summed gradients of the newest step are divided by.
    weight: f64,
    /// Number of the next bucket of the running step.
    next: usize,
    /// What the errors are multiplied by in the running step.
    scale: f32,
}

impl RoundingErrors {
    /// Drops all errors.
    pub(crate) fn clear(&mut self) {
        self.buckets.clear();
    }

    /// Begins a step whose summed gradients are divided by `weight`. The errors are parts of sums,
    /// so they are scaled from the weight of their own step to this one.
    pub(super) fn begin_step(&mut self, weight: f64) {
        let scale = weight / self.weight;
        self.scale = if scale.is_finite() { scale as f32 } else { 0.0 };
        (self.weight, self.next) = (weight, 0);
    }

    /// The sum of the next bucket over all ranks. Every rank passes the same buckets in each step.
    ///
    /// # Errors
    /// The group is broken.
    pub(super) fn sum(&mut self, group: &RunGroup, mut values: Vec<f32>) -> Result<Vec<f32>> {
        let index = self.next;
        self.next += 1;
        if let Some(errors) = self.buckets.get(index) {
            for (value, error) in values.iter_mut().zip(errors) {
                *value += self.scale * error;
            }
        }
        let RoundedSum { sum, error } = group.sum_rounded(values)?;
        match self.buckets.get_mut(index) {
            Some(bucket) => *bucket = error,
            None => self.buckets.push(error),
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use distributed::{ThreadOptions, thread_ranks};

    /// Sums `steps` of a rank, each with its weight, and returns the sums.
    fn sum_steps(group: &RunGroup, steps: &[(f64, f32)]) -> Vec<f32> {
        let mut errors = RoundingErrors::default();
        let sums = steps.iter().map(|(weight, value)| {
            errors.begin_step(*weight);
            let first = errors.sum(group, vec![*value; 3]).expect("no rank is lost");
            let second = errors.sum(group, vec![*value; 2]).expect("no rank is lost");
            assert_eq!((first[0], first.len()), (second[1], 3));
            first[2]
        });
        sums.collect()
    }

    fn in_pair(steps: &[(f64, f32)]) -> Vec<Vec<f32>> {
        std::thread::scope(|scope| {
            let ranks = thread_ranks(2, ThreadOptions::default()).into_iter();
            let threads = ranks.map(|rank| {
                scope.spawn(move || {
                    let group = RunGroup::new(rank.join().expect("all ranks join"));
                    let sums = sum_steps(&group, steps);
                    group.leave().expect("all ranks leave");
                    sums
                })
            });
            let threads: Vec<_> = threads.collect();
            let sums = threads.into_iter().map(|thread| thread.join());
            sums.collect::<std::thread::Result<_>>()
        })
        .expect("no rank panics")
    }

    #[test]
    fn what_is_rounded_away_arrives_later() {
        // Alone, 1 + 1/512 is rounded to 1.
        let value = 1.0 + 1.0 / 512.0;
        let ranks = in_pair(&[(4.0, value); 64]);
        assert_eq!(ranks[0], ranks[1]);
        let total: f32 = ranks[0].iter().sum();
        assert!((total - 128.0 * value).abs() <= 1.0 / 32.0, "{total}");
        // A step of twice the weight counts the error of the step before twice.
        let doubled = in_pair(&[(4.0, value), (8.0, 0.0)]);
        let rest = doubled[0][1];
        assert!((rest - 2.0 * (2.0 * value - doubled[0][0])).abs() < 1e-3);
        assert!(rest > 0.0, "the error of the first step");
    }
}
