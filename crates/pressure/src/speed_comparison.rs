//! Which micro-batch sizes are faster, and how certain that is. Other programs make a machine
//! slower and faster all the time, so the speeds of two sizes are compared only in pairs: whenever
//! the size changes, the micro-batches just before and just after it are compared.

use crate::policy::{
    MAX_PAIR_WEIGHT, MAX_SPEED_PAIRS, MIN_TIMING_NOISE, PAIR_REFERENCE, PLATEAU_MIN_SIZES,
    TIMING_CERTAINTY, TIMING_NOISE_WEIGHT,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// The comparisons of one kind of micro-batch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct SpeedComparison {
    pairs: Vec<Pair>,
    /// Variance of the logarithm of the time per cost, between two micro-batches in a row of the
    /// same size.
    noise: f64,
    /// How many such differences were measured.
    timings: u32,
    /// The newest micro-batches of one size.
    #[serde(skip)]
    newest: Streak,
}

/// The micro-batches of one size since the size changed.
#[derive(Debug, Clone, PartialEq, Default)]
struct Streak {
    size: u32,
    /// Logarithms of the time per cost, oldest first.
    logs: VecDeque<f64>,
    /// The size before, and its mean, until the two are compared.
    before: Option<(u32, f64)>,
}

/// The logarithm of the time per cost at `to`, less that at `from`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Pair {
    from: u32,
    to: u32,
    /// Observations; older ones count less.
    weight: f64,
    mean: f64,
    /// Sum of the squared deviations.
    deviations: f64,
}

/// The logarithm of how much slower one size is than another, and its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Difference {
    mean: f64,
    variance: f64,
}

impl Difference {
    fn at_least(self) -> f64 {
        self.mean - TIMING_CERTAINTY * self.variance.sqrt()
    }

    fn at_most(self) -> f64 {
        self.mean + TIMING_CERTAINTY * self.variance.sqrt()
    }
}

impl SpeedComparison {
    /// Takes the time per cost of a micro-batch.
    pub(crate) fn record(&mut self, size: u32, ms_per_cost: f64) {
        let log = ms_per_cost.ln();
        if !log.is_finite() {
            return;
        }
        let newest = &mut self.newest;
        if newest.size != size {
            let mean = newest.logs.iter().sum::<f64>() / newest.logs.len().max(1) as f64;
            let measured = (!newest.logs.is_empty()).then_some((newest.size, mean));
            // A size that ran only once, such as a rest of the batch, is passed over.
            let before = measured.or(newest.before);
            let before = before.filter(|(before, _)| *before != size);
            *newest = Streak {
                size,
                before,
                ..Streak::default()
            };
            // A larger micro-batch touches new memory, so its first time says nothing.
            if before.is_none_or(|(before, _)| size > before) {
                return;
            }
        }
        if let Some(last) = newest.logs.back() {
            let squared = (log - last).powi(2) / 2.0;
            self.timings = self.timings.saturating_add(1);
            let weight = TIMING_NOISE_WEIGHT.max(1.0 / f64::from(self.timings));
            self.noise += weight * (squared - self.noise);
        }
        newest.logs.push_back(log);
        if newest.logs.len() > PAIR_REFERENCE {
            newest.logs.pop_front();
        }
        if let Some((before, mean)) = newest.before.take() {
            self.add(before, size, log - mean);
        }
    }

    fn add(&mut self, from: u32, to: u32, difference: f64) {
        let (from, to, difference) = if from < to {
            (from, to, difference)
        } else {
            (to, from, -difference)
        };
        let found = self.pairs.iter().position(|p| (p.from, p.to) == (from, to));
        let mut pair = match found {
            Some(index) => self.pairs.remove(index),
            None => Pair {
                from,
                to,
                weight: 0.0,
                mean: 0.0,
                deviations: 0.0,
            },
        };
        let forget = (MAX_PAIR_WEIGHT / (pair.weight + 1.0)).min(1.0);
        (pair.weight, pair.deviations) = (forget * pair.weight, forget * pair.deviations);
        pair.weight += 1.0;
        let off = difference - pair.mean;
        pair.mean += off / pair.weight;
        pair.deviations += off * (difference - pair.mean);
        if self.pairs.len() == MAX_SPEED_PAIRS {
            self.pairs.remove(0);
        }
        self.pairs.push(pair);
    }

    /// Variance of the mean of a pair: that of its observations and of the timing, which counts as
    /// two observations.
    fn variance(&self, pair: &Pair) -> f64 {
        let expected = self.noise.max(MIN_TIMING_NOISE * MIN_TIMING_NOISE)
            * (1.0 + 1.0 / PAIR_REFERENCE as f64);
        (2.0 * expected + pair.deviations) / (1.0 + pair.weight) / pair.weight
    }

    /// All sizes that can be compared with `size`, directly or through others.
    fn differences(&self, size: u32) -> BTreeMap<u32, Difference> {
        let zero = Difference {
            mean: 0.0,
            variance: 0.0,
        };
        let mut known = BTreeMap::from([(size, zero)]);
        let mut queue = VecDeque::from([size]);
        while let Some(at) = queue.pop_front() {
            let here = known[&at];
            for pair in &self.pairs {
                let (next, sign) = match at {
                    at if at == pair.from => (pair.to, 1.0),
                    at if at == pair.to => (pair.from, -1.0),
                    _ => continue,
                };
                known.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    Difference {
                        mean: here.mean + sign * pair.mean,
                        variance: here.variance + self.variance(pair),
                    }
                });
            }
        }
        known
    }

    /// The throughput plateau: the smallest size of which it is certain that no larger size is
    /// faster by more than `tolerance`, once a size at least twice as large was tried.
    pub(crate) fn plateau(&self, tolerance: f64) -> Option<u32> {
        let mut sizes: Vec<u32> = self.pairs.iter().flat_map(|p| [p.from, p.to]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < PLATEAU_MIN_SIZES {
            return None;
        }
        let is_plateau = |size: &u32| {
            let differences = self.differences(*size);
            let mut larger = differences.range(size + 1..);
            larger.clone().any(|(other, _)| *other >= 2 * size)
                && larger.all(|(_, difference)| difference.at_least() >= -tolerance)
        };
        sizes.into_iter().find(is_plateau)
    }

    /// Whether it is certain that a larger size than `size` is faster, by about more than
    /// `tolerance`.
    pub(crate) fn is_larger_faster(&self, size: u32, tolerance: f64) -> bool {
        let differences = self.differences(size);
        let mut larger = differences.range(size + 1..);
        larger.any(|(_, difference)| difference.at_most() < 0.0 && difference.mean < -tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers of a normal distribution, the same in every run.
    struct Noise(u64);

    impl Noise {
        fn unit(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ((self.0 >> 33) as f64 + 0.5) / (1u64 << 31) as f64
        }

        fn normal(&mut self) -> f64 {
            (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
        }
    }

    /// A slow start, then a hundred epochs of micro-batches of 16 with a rest of 6, on a machine
    /// whose timing is noisy and that other programs make twice as slow for half of the time.
    fn trained(seed: u64, noise: f64, load: f64, ms_per_cost: fn(u32) -> f64) -> SpeedComparison {
        let (mut compared, mut random) = (SpeedComparison::default(), Noise(seed));
        let slow_start = [1, 2, 2, 8, 8, 8, 8].into_iter();
        let epoch = |rest: u32| std::iter::repeat_n(16, 28).chain([rest]);
        let sizes = slow_start.chain((0..100).flat_map(|_| epoch(6)));
        for (number, size) in sizes.enumerate() {
            let busy = if number / 97 % 2 == 1 { load } else { 1.0 };
            let factor = (noise * random.normal()).exp() * busy;
            compared.record(size, ms_per_cost(size) * factor);
        }
        compared
    }

    /// A difference is certain with 95 %, so a pair that was measured once may be wrong.
    #[test]
    fn noise_of_the_timing_is_rarely_a_plateau() {
        // Twice the size is 10 % faster.
        let faster = |size: u32| 1.0 / f64::from(size).powf(0.14);
        let wrong = (0..50).filter(|seed| trained(*seed, 0.3, 2.0, faster).plateau(0.03).is_some());
        let wrong = wrong.count();
        assert!(wrong <= 5, "{wrong} of 50");
    }

    #[test]
    fn a_size_that_ran_once_is_passed_over() {
        let mut compared = SpeedComparison::default();
        for size in [8, 8, 8, 32, 5, 32, 32, 32, 64, 64] {
            compared.record(
                size,
                f64::from(size.max(8)) / 8.0 + f64::from(8u32.saturating_sub(size)),
            );
        }
        assert_eq!(compared.plateau(0.03), Some(8));
    }

    #[test]
    fn a_plateau_is_found_in_little_noise_and_under_changing_load() {
        let mut found = 0;
        let flat_from_6 = |size: u32| 1.0 + f64::from(6u32.saturating_sub(size)) * 0.3;
        for seed in 0..50 {
            let plateau = trained(seed, 0.01, 2.0, flat_from_6).plateau(0.03);
            assert!(
                plateau.is_none_or(|size| size >= 6),
                "{plateau:?}, seed {seed}"
            );
            found += u32::from(plateau.is_some());
        }
        assert!(found >= 25, "only {found} of 50");
    }

    #[test]
    fn a_size_that_is_much_slower_is_found_at_once() {
        let mut compared = SpeedComparison::default();
        for size in [1, 2, 2, 8, 8, 8, 32, 32] {
            compared.record(size, if size > 8 { 6.5 } else { 8.0 / f64::from(size) });
        }
        assert_eq!(compared.plateau(0.03), Some(8));
        assert!(compared.is_larger_faster(2, 0.03));
        assert!(!compared.is_larger_faster(8, 0.03));
    }

    #[test]
    fn a_plateau_needs_three_sizes_and_one_that_is_twice_as_large() {
        let of = |sizes: &[u32]| {
            let mut compared = SpeedComparison::default();
            sizes
                .iter()
                .for_each(|size| compared.record(*size, 1.0 + 9.0 / f64::from(*size).powi(4)));
            compared.plateau(0.05)
        };
        assert_eq!(of(&[8, 8, 32, 32]), None, "two sizes");
        assert_eq!(of(&[2, 2, 8, 8, 11, 11]), None, "11 is not twice 8");
        assert_eq!(of(&[2, 2, 8, 8, 32, 32]), Some(8));
    }

    #[test]
    fn absurd_times_and_many_sizes_are_ridden_out() {
        let mut compared = SpeedComparison::default();
        for round in 0..3u32 {
            for size in 1..300 {
                for ms in [f64::NAN, 0.0, -1.0, f64::INFINITY, f64::from(size + round)] {
                    compared.record(size, ms);
                }
            }
        }
        assert!(compared.pairs.len() <= MAX_SPEED_PAIRS);
        assert_eq!(compared.plateau(0.03), None);
    }
}
