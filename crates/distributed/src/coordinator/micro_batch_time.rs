//! The time that micro-batches of a rank take: a constant part, and a part for each sample. Both
//! are the least-squares fit to the micro-batches of the last steps.

/// What the micro-batches of earlier steps count for after each step.
const REMEMBERED: f64 = 0.7;
/// Weight of the newest step in the usual deviation.
const NEW_DEVIATION: f64 = 0.15;
/// The usual deviation before any is known, and the smallest one that is assumed.
const FIRST_DEVIATION: f64 = 0.1;
const SMALLEST_DEVIATION: f64 = 0.005;
/// The time by which the slowest rank is late, as a multiple of the usual deviation.
const LATENESS: f64 = 5.0;
/// If a step takes by this fraction more or less than expected, the speed is another one, and
/// earlier steps are forgotten. The first step of a run is much slower than all others.
const ANOTHER_SPEED: f64 = 0.25;
/// The sizes of micro-batches tell the constant part only if their variance is at least this
/// fraction of their squared mean.
const DIFFERENT_SIZES: f64 = 0.02;

/// Weighted sums over micro-batches.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: f64,
    samples: f64,
    seconds: f64,
    /// Of the squared samples, and of the products of samples and seconds.
    squares: f64,
    products: f64,
}

impl Sums {
    fn add(&mut self, other: Sums, weight: f64) {
        self.count += weight * other.count;
        self.samples += weight * other.samples;
        self.seconds += weight * other.seconds;
        self.squares += weight * other.squares;
        self.products += weight * other.products;
    }
}

/// What is known of the time.
#[derive(Debug, Clone)]
pub(super) struct MicroBatchTime {
    /// Of this step, and of earlier ones.
    step: Sums,
    past: Sums,
    /// The constant part and that of each sample, in seconds; `None` if unknown.
    parts_s: Option<(f64, f64)>,
    /// By which fraction the micro-batches of a step usually deviate from the fit.
    deviation: f64,
}

impl Default for MicroBatchTime {
    fn default() -> Self {
        MicroBatchTime {
            step: Sums::default(),
            past: Sums::default(),
            parts_s: None,
            deviation: FIRST_DEVIATION,
        }
    }
}

impl MicroBatchTime {
    /// Learns from a micro-batch.
    pub(super) fn add(&mut self, samples: f64, seconds: f64) {
        let micro_batch = Sums {
            count: 1.0,
            samples,
            seconds,
            squares: samples * samples,
            products: samples * seconds,
        };
        self.step.add(micro_batch, 1.0);
    }

    /// Fits the parts to the micro-batches of this step and earlier ones.
    pub(super) fn end_step(&mut self) {
        let step = std::mem::take(&mut self.step);
        if step.count <= 0.0 {
            return;
        }
        if let Some((constant, each)) = self.parts_s {
            let expected = constant * step.count + each * step.samples;
            let deviation = (step.seconds / expected - 1.0).abs();
            if deviation > ANOTHER_SPEED {
                self.past = Sums::default();
                self.deviation = FIRST_DEVIATION;
            } else {
                self.deviation += NEW_DEVIATION * (deviation - self.deviation);
            }
        }
        let mut sums = step;
        sums.add(self.past, REMEMBERED);
        self.past = sums;
        let (mean, mean_s) = (sums.samples / sums.count, sums.seconds / sums.count);
        let variance = sums.squares / sums.count - mean * mean;
        let covariance = sums.products / sums.count - mean * mean_s;
        if variance >= DIFFERENT_SIZES * mean * mean {
            let each = (covariance / variance).clamp(0.0, mean_s / mean);
            self.parts_s = Some((mean_s - each * mean, each));
        } else if let Some((constant, each)) = &mut self.parts_s {
            // The sizes are alike: the constant part stays the same fraction.
            let change = mean_s / (*constant + *each * mean);
            *constant *= change;
            *each *= change;
        }
    }

    /// Seconds that `samples` take in micro-batches of at most `at_most`; 0 if unknown.
    pub(super) fn seconds(&self, samples: u32, at_most: u32) -> f64 {
        let (constant, each) = self.parts_s.unwrap_or_default();
        let micro_batches = samples.div_ceil(at_most.max(1));
        f64::from(micro_batches) * constant + f64::from(samples) * each
    }

    /// The smallest claim that it pays to divide. A claim of this size may end late by as much time
    /// as the constant part takes, which another micro-batch would cost.
    pub(super) fn least_samples(&self) -> u32 {
        let Some((constant, each)) = self.parts_s else {
            return 1;
        };
        let deviation = self.deviation.max(SMALLEST_DEVIATION);
        // The cast saturates.
        (constant / (LATENESS * deviation * each.max(f64::MIN_POSITIVE))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(seconds: impl Fn(f64, u32) -> f64, sizes: &[f64]) -> MicroBatchTime {
        let mut time = MicroBatchTime::default();
        for step in 0..20 {
            for &samples in sizes {
                time.add(samples, seconds(samples, step));
            }
            time.end_step();
        }
        time
    }

    #[test]
    fn the_parts_are_those_of_the_micro_batches() {
        let time = learned(|samples, _| 0.005 + 0.0045 * samples, &[4.0, 2.0, 1.0, 1.0]);
        let (constant, each) = time.parts_s.expect("the sizes differ");
        assert!((constant - 0.005).abs() < 1e-9 && (each - 0.0045).abs() < 1e-9);
        // Steady and costly: a claim is not divided.
        assert!(time.least_samples() >= 8, "{}", time.least_samples());
        // Nothing is known from micro-batches of one size.
        assert_eq!(learned(|_, _| 0.04, &[8.0, 8.0]).least_samples(), 1);
    }

    #[test]
    fn a_claim_is_divided_if_times_vary_or_micro_batches_cost_little() {
        let varying = |samples: f64, step: u32| {
            (0.005 + 0.0045 * samples) * if step.is_multiple_of(2) { 1.0 } else { 0.5 }
        };
        let least = learned(varying, &[4.0, 2.0, 1.0]).least_samples();
        assert!(least <= 2, "{least}");
        let cheap = |samples: f64, step: u32| {
            (0.0001 + 0.01 * samples) * if step.is_multiple_of(2) { 1.0 } else { 0.95 }
        };
        let least = learned(cheap, &[8.0, 4.0, 2.0]).least_samples();
        assert!(least <= 1, "{least}");
    }

    #[test]
    fn the_constant_part_is_kept_while_all_sizes_are_alike() {
        let mut time = learned(|samples, _| 0.005 + 0.0045 * samples, &[4.0, 2.0, 1.0]);
        for _ in 0..50 {
            time.add(8.0, 2.0 * (0.005 + 0.0045 * 8.0));
            time.end_step();
        }
        let (constant, each) = time.parts_s.expect("it was known");
        assert!((constant / each - 0.005 / 0.0045).abs() < 0.01);
        assert!((each - 0.009).abs() < 1e-4, "{each}");
        assert!(time.least_samples() >= 8, "{}", time.least_samples());
    }
}
