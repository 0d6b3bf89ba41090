//! How far numbers were off on held-out samples: sums and single errors, and what they come to in the columns' units, with
//! intervals. Refuses to know photographs.

use dataset::TargetColumn;
use std::collections::BTreeMap;

/// Resamplings of a bootstrap interval.
const RESAMPLINGS: usize = 2000;

/// The errors of one number over samples that have it, in deviations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NumberErrors {
    /// Summed Huber's loss.
    pub loss: f64,
    /// Of each sample: the absolute error, and that of the mean of the samples trained on.
    pub absolute: Vec<(f64, f64)>,
}

/// One number's errors in its column's unit.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct NumberReport {
    /// The column.
    pub name: String,
    /// Samples that have the number.
    pub samples: u64,
    /// Mean absolute error.
    pub mean_absolute_error: f64,
    /// Its 95 % interval, by resampling the samples.
    pub interval: (f64, f64),
    /// The same error of the mean over the samples trained on.
    pub of_the_mean: f64,
    /// 95 % interval of how much smaller than that the error is, resampled in pairs: above 0 the network is better.
    pub better_by: (f64, f64),
}

/// Adds the errors of another piece, number by number.
pub(super) fn add(sums: &mut Vec<NumberErrors>, other: Vec<NumberErrors>) {
    sums.resize(sums.len().max(other.len()), NumberErrors::default());
    for (sum, other) in sums.iter_mut().zip(other) {
        sum.loss += other.loss;
        sum.absolute.extend(other.absolute);
    }
}

impl NumberErrors {
    fn mean(&self, of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        self.absolute.iter().map(of).sum::<f64>() / self.absolute.len().max(1) as f64
    }

    /// Mean Huber's loss; 0 without samples.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.absolute.len().max(1) as f64
    }

    /// Mean absolute error, in deviations.
    pub fn mean_absolute(&self) -> f64 {
        self.mean(|(error, _)| *error)
    }

    /// What the errors come to in the unit of `column`.
    pub fn report(&self, column: &TargetColumn) -> NumberReport {
        let unit = column.deviation;
        let scaled = |(low, high): (f64, f64)| (low * unit, high * unit);
        NumberReport {
            name: column.name.clone(),
            samples: self.absolute.len() as u64,
            mean_absolute_error: self.mean_absolute() * unit,
            interval: scaled(self.bootstrap(|(error, _)| *error)),
            of_the_mean: self.mean(|(_, of_mean)| *of_mean) * unit,
            better_by: scaled(self.bootstrap(|(error, of_mean)| of_mean - error)),
        }
    }

    /// The middle 95 % of the means over samples drawn with replacement (Efron 1979). The draws are always the same ones.
    fn bootstrap(&self, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let values: Vec<f64> = self.absolute.iter().map(of).collect();
        let n = values.len();
        if n == 0 {
            return (f64::NAN, f64::NAN);
        }
        let draws = tape::Rng::new(0).site("bootstrap");
        let mean = |round: usize| {
            let stream = draws.at(round as u64);
            let drawn =
                (0..n as u64).map(|i| values[((stream.uniform(i) * n as f64) as usize).min(n - 1)]);
            drawn.sum::<f64>() / n as f64
        };
        let mut means: Vec<f64> = (0..RESAMPLINGS).map(mean).collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[(share * (RESAMPLINGS - 1) as f64).round() as usize];
        (at(0.025), at(0.975))
    }
}

/// Metrics by name: `mae.mass_g`, and `mae_of_mean.mass_g` of the mean over the samples trained on, in the column's unit.
pub(super) fn named(errors: &[NumberErrors], columns: &[TargetColumn]) -> BTreeMap<String, f64> {
    let pairs = errors
        .iter()
        .zip(columns)
        .filter(|(e, _)| !e.absolute.is_empty());
    pairs
        .flat_map(|(errors, column)| {
            let (own, of_mean) = (errors.mean_absolute(), errors.mean(|(_, of_mean)| *of_mean));
            [
                (format!("mae.{}", column.name), own * column.deviation),
                (
                    format!("mae_of_mean.{}", column.name),
                    of_mean * column.deviation,
                ),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_reported_in_the_unit_of_the_column_beside_those_of_the_mean() {
        let column = TargetColumn {
            name: "mass_g".to_owned(),
            mean: 100.0,
            deviation: 50.0,
            present: 10,
            range: (0.0, 200.0),
        };
        let mut errors = vec![NumberErrors {
            loss: 1.0,
            absolute: vec![(0.2, 1.0), (0.4, 0.5)],
        }];
        add(
            &mut errors,
            vec![NumberErrors {
                loss: 2.0,
                absolute: vec![(0.6, 1.5)],
            }],
        );
        let report = errors[0].report(&column);
        assert_eq!((report.samples, errors[0].mean_loss()), (3, 1.0));
        assert!(
            (report.mean_absolute_error - 20.0).abs() < 1e-9,
            "{report:?}"
        );
        assert!((report.of_the_mean - 50.0).abs() < 1e-9, "{report:?}");
        let (low, high) = report.interval;
        assert!(
            (10.0..20.0).contains(&low) && high > 20.0 && high <= 30.0 + 1e-9,
            "{report:?}"
        );
        assert!(report.better_by.0 >= 5.0 - 1e-9, "{report:?}");
        let named = named(&errors, &[column]);
        assert!((named["mae.mass_g"] - 20.0).abs() < 1e-9);
        assert!((named["mae_of_mean.mass_g"] - 50.0).abs() < 1e-9);
    }

    #[test]
    fn an_interval_covers_the_true_mean_nineteen_times_in_twenty() {
        let mut covered = 0;
        for trial in 0..200u64 {
            let stream = tape::Rng::new(5).at(trial);
            let errors = NumberErrors {
                loss: 0.0,
                absolute: (0..60).map(|i| (stream.uniform(i), 1.0)).collect(),
            };
            let (low, high) = errors.bootstrap(|(error, _)| *error);
            covered += u32::from((low..high).contains(&0.5));
        }
        assert!((178..=199).contains(&covered), "{covered} of 200");
    }
}
