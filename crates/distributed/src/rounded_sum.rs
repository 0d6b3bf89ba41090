//! A sum whose values travel in bf16, two bytes each. Each rank sums one chunk: it adds what all
//! ranks send of this chunk in the order of ranks, in f32, rounds the sum once and sends it to all.
//! A rank sends and receives `2 (N - 1) / N` times 2 bytes per value, half of an exchange in f32.
//!
//! Each rank learns what rounding has taken away from its values and from the sum of its chunk. A
//! caller that adds this error to its next values loses nothing in the long run (error feedback:
//! Karimireddy et al. 2019; for both roundings: Tang et al. 2019, "DoubleSqueeze").

use crate::error::Result;
use crate::group::{RoundedSum, disagreement};
use half::bf16;
use std::ops::Range;

/// A running sum as one rank sees it.
pub(crate) struct RunningSum {
    rank: usize,
    size: usize,
    /// In the chunk of this rank, its values until the chunk is summed. Otherwise what rounding has
    /// taken away.
    values: Vec<f32>,
    sum: Vec<f32>,
    /// By rank: whether the sum of its chunk is there.
    has_sum: Vec<bool>,
}

impl RunningSum {
    /// Begins a sum in which this rank passes `values`.
    pub(crate) fn new(rank: usize, size: usize, values: Vec<f32>) -> Self {
        RunningSum {
            rank,
            size,
            sum: vec![0.0; values.len()],
            values,
            has_sum: vec![false; size],
        }
    }

    /// The values that `rank` sums.
    fn chunk(&self, rank: usize) -> Range<usize> {
        let bound = |rank: usize| self.values.len() * rank / self.size;
        bound(rank)..bound(rank + 1)
    }

    /// What this rank sends to another rank: its values of that rank's chunk, in bf16. To be called
    /// once per rank.
    pub(crate) fn take_part(&mut self, to: usize) -> Vec<u8> {
        let chunk = self.chunk(to);
        round(&mut self.values[chunk])
    }

    /// Sums the chunk of this rank from the parts of all other ranks, in the order of ranks.
    /// Returns the sum in bf16, which all other ranks need.
    ///
    /// # Errors
    /// A part has another length.
    pub(crate) fn add_parts(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<u8>> {
        let own = self.chunk(self.rank);
        let mut total = vec![0.0f32; own.len()];
        let mut parts = parts.into_iter();
        for rank in 0..self.size {
            if rank == self.rank {
                add(&mut total, self.values[own.clone()].iter().copied());
                continue;
            }
            let part = parts.next().unwrap_or_default();
            if part.len() != 2 * own.len() {
                return Err(other_length(rank));
            }
            add(&mut total, read(&part));
        }
        let bytes = round(&mut total);
        self.values[own].copy_from_slice(&total);
        self.receive_sum(self.rank, &bytes)?;
        Ok(bytes)
    }

    /// Takes the sum of the chunk of a rank, in bf16.
    ///
    /// # Errors
    /// The sum has another length, or was there already.
    pub(crate) fn receive_sum(&mut self, of: usize, bytes: &[u8]) -> Result<()> {
        let chunk = self.chunk(of);
        if bytes.len() != 2 * chunk.len() || std::mem::replace(&mut self.has_sum[of], true) {
            return Err(other_length(of));
        }
        for (sum, value) in self.sum[chunk].iter_mut().zip(read(bytes)) {
            *sum = value;
        }
        Ok(())
    }

    /// Whether the chunk of this rank is summed.
    pub(crate) fn has_own_sum(&self) -> bool {
        self.has_sum[self.rank]
    }

    /// Whether all chunks are summed.
    pub(crate) fn is_complete(&self) -> bool {
        self.has_sum.iter().all(|has_sum| *has_sum)
    }

    /// The complete sum.
    pub(crate) fn finish(self) -> RoundedSum {
        RoundedSum {
            sum: self.sum,
            error: self.values,
        }
    }
}

fn other_length(rank: usize) -> crate::error::GroupError {
    disagreement(format!(
        "rank {rank} and this machine add up different values"
    ))
}

fn add(total: &mut [f32], values: impl Iterator<Item = f32>) {
    for (total, value) in total.iter_mut().zip(values) {
        *total += value;
    }
}

/// The values in bf16, two bytes each. What rounding has taken away stays in their place: nothing
/// where the value or its error is not finite, because such a step is skipped.
fn round(values: &mut [f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * values.len());
    for value in values {
        let rounded = bf16::from_f32(*value);
        bytes.extend(rounded.to_le_bytes());
        let error = *value - rounded.to_f32();
        *value = if error.is_finite() { error } else { 0.0 };
    }
    bytes
}

/// Values that were written as bf16.
fn read(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let pairs = bytes.as_chunks::<2>().0.iter();
    pairs.map(|pair| bf16::from_le_bytes(*pair).to_f32())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The sums of all ranks, whose messages arrive at once.
    fn sum_of(values: &[Vec<f32>]) -> Vec<RoundedSum> {
        let size = values.len();
        let begin =
            |(rank, values): (usize, &Vec<f32>)| RunningSum::new(rank, size, values.clone());
        let mut running: Vec<RunningSum> = values.iter().enumerate().map(begin).collect();
        for rank in 0..size {
            let others = (0..size).filter(|other| *other != rank);
            let parts = others.map(|other| running[other].take_part(rank)).collect();
            let sum = running[rank].add_parts(parts).expect("equal lengths");
            for other in (0..size).filter(|other| *other != rank) {
                let received = running[other].receive_sum(rank, &sum);
                received.expect("the length of the chunk");
            }
        }
        assert!(running.iter().all(RunningSum::is_complete));
        running.into_iter().map(RunningSum::finish).collect()
    }

    fn random_values(seed: u64, count: usize) -> Vec<f32> {
        let mut random = Random::new(seed);
        let value = |_| ((random.unit() - 0.5) * 10f64.powf(6.0 * random.unit() - 3.0)) as f32;
        (0..count).map(value).collect()
    }

    #[test]
    fn all_ranks_get_the_same_bits_and_no_part_of_a_value_is_lost() {
        for (size, count) in [(1, 5), (2, 7), (3, 1000), (5, 3), (4, 0)] {
            let values: Vec<_> = (0..size as u64).map(|s| random_values(s, count)).collect();
            let sums = sum_of(&values);
            for at in 0..count {
                let same = |sum: &RoundedSum| sum.sum[at].to_bits() == sums[0].sum[at].to_bits();
                assert!(sums.iter().all(same), "{size} ranks, value {at}");
                let exact: f64 = values.iter().map(|v| f64::from(v[at])).sum();
                let errors: f64 = sums.iter().map(|s| f64::from(s.error[at])).sum();
                let sum = f64::from(sums[0].sum[at]);
                let largest: f64 = values.iter().map(|v| f64::from(v[at].abs())).sum();
                // Only the additions in f32 have no error term.
                let lost = (sum + errors - exact).abs();
                assert!(lost <= 1e-6 * largest, "{size} ranks: {lost:e} of {exact}");
                // Half of the spacing of bf16 for each rank, and once more for the sum.
                assert!((sum - exact).abs() <= largest / 128.0, "{sum} for {exact}");
            }
        }
    }

    #[test]
    fn with_error_feedback_small_values_are_not_lost() {
        // Alone, 1 + 1/1024 is rounded to 1, so that the sum of 100 steps would be 200.
        let (mut errors, mut total) = (vec![vec![0.0f32]; 2], 0.0);
        for _ in 0..100 {
            let of_rank = |error: &Vec<f32>| vec![1.0 + 1.0 / 1024.0 + error[0]];
            let values: Vec<Vec<f32>> = errors.iter().map(of_rank).collect();
            let sums = sum_of(&values);
            total += f64::from(sums[0].sum[0]);
            errors = sums.into_iter().map(|sum| sum.error).collect();
        }
        let exact = 200.0 + 200.0 / 1024.0;
        let spacing = 2.0 / 128.0;
        assert!(
            (total - exact).abs() <= 2.0 * spacing,
            "{total} for {exact}"
        );
    }

    #[test]
    fn values_that_are_not_finite_stay_so_and_leave_no_error() {
        let values = [f32::NAN, f32::INFINITY, f32::MAX, 1.0];
        for sum in sum_of(&[values.to_vec(), vec![0.0; 4]]) {
            assert!(sum.sum[0].is_nan());
            assert_eq!(sum.sum[1..], [f32::INFINITY, f32::INFINITY, 1.0]);
            assert_eq!(sum.error, [0.0; 4]);
        }
    }

    #[test]
    fn another_number_of_values_is_an_error() {
        let mut sum = RunningSum::new(0, 2, vec![1.0; 4]);
        assert!(sum.add_parts(vec![vec![0; 6]]).is_err());
        assert!(sum.receive_sum(1, &[0; 2]).is_err());
        assert!(sum.receive_sum(1, &[0; 4]).is_ok());
        assert!(sum.receive_sum(1, &[0; 4]).is_err(), "twice");
    }
}
