//! Errors of regression targets on held-out samples, and their means in the columns' units with
//! confidence intervals.

use dataset::TargetColumn;
use models::HUBER_DELTA;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Resamplings of a bootstrap interval.
const RESAMPLINGS: usize = 2000;

/// The errors of one target over the samples that have it, in standard deviations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegressionErrors {
    /// Summed Huber loss.
    pub loss: f64,
    /// For each sample: the absolute error, and the absolute error of predicting the training mean.
    pub absolute: Vec<(f64, f64)>,
}

/// The errors of one target in its column's unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegressionReport {
    /// Name of the column.
    pub name: String,
    /// Samples that have the target.
    pub samples: u64,
    /// In the unit of the column.
    pub mean_absolute_error: f64,
    /// Its 95 % interval, by a bootstrap over samples.
    #[serde(deserialize_with = "interval_or_null")]
    pub interval: (f64, f64),
    /// Mean absolute error of predicting the training mean.
    pub mean_baseline_error: f64,
    /// 95 % interval of the paired difference between the two; above 0, the network is better than
    /// the mean.
    #[serde(deserialize_with = "interval_or_null")]
    pub improvement_interval: (f64, f64),
}

/// Deserializes an interval; JSON writers replace NaN, the bounds without samples, by null.
fn interval_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(f64, f64), D::Error> {
    let (low, high) = <(Option<f64>, Option<f64>)>::deserialize(deserializer)?;
    Ok((low.unwrap_or(f64::NAN), high.unwrap_or(f64::NAN)))
}

/// Adds the errors of another micro-batch, target by target.
pub(super) fn add(sums: &mut Vec<RegressionErrors>, other: Vec<RegressionErrors>) {
    sums.resize(sums.len().max(other.len()), RegressionErrors::default());
    for (sum, other) in sums.iter_mut().zip(other) {
        sum.loss += other.loss;
        sum.absolute.extend(other.absolute);
    }
}

impl RegressionErrors {
    /// Adds the prediction for one sample.
    pub(super) fn add_sample(&mut self, target: f64, predicted: f64) {
        let error = (predicted - target).abs();
        self.loss += if error <= HUBER_DELTA {
            0.5 * error * error
        } else {
            HUBER_DELTA * (error - 0.5 * HUBER_DELTA)
        };
        self.absolute.push((error, target.abs()));
    }

    fn mean(&self, of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        self.absolute.iter().map(of).sum::<f64>() / self.absolute.len().max(1) as f64
    }

    /// Mean Huber loss; 0 without samples.
    pub(crate) fn mean_loss(&self) -> f64 {
        self.loss / self.absolute.len().max(1) as f64
    }

    /// Mean absolute error, in standard deviations.
    pub fn mean_absolute(&self) -> f64 {
        self.mean(|(error, _)| *error)
    }

    /// The errors in the unit of `column`.
    pub fn report(&self, column: &TargetColumn) -> RegressionReport {
        let unit = column.deviation;
        let in_unit = |interval: (f64, f64)| (interval.0 * unit, interval.1 * unit);
        RegressionReport {
            name: column.name.clone(),
            samples: self.absolute.len() as u64,
            mean_absolute_error: self.mean_absolute() * unit,
            interval: in_unit(self.bootstrap(|(error, _)| *error)),
            mean_baseline_error: self.mean(|(_, of_mean)| *of_mean) * unit,
            improvement_interval: in_unit(self.bootstrap(|(error, of_mean)| of_mean - error)),
        }
    }

    /// The middle 95 % of the means over samples drawn with replacement (Efron 1979). The draws are
    /// deterministic.
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

/// Metrics by name, in the column's unit: `mae.mass_g`, and `mae_of_mean.mass_g` for predicting the
/// training mean.
pub(super) fn named(
    errors: &[RegressionErrors],
    columns: &[TargetColumn],
) -> BTreeMap<String, f64> {
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
    fn errors_are_reported_in_the_columns_unit_with_a_baseline() {
        let column = TargetColumn {
            name: "mass_g".to_owned(),
            mean: 100.0,
            deviation: 50.0,
            present: 10,
            range: (0.0, 200.0),
        };
        let mut errors = vec![RegressionErrors {
            loss: 1.0,
            absolute: vec![(0.2, 1.0), (0.4, 0.5)],
        }];
        add(
            &mut errors,
            vec![RegressionErrors {
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
        assert!(
            (report.mean_baseline_error - 50.0).abs() < 1e-9,
            "{report:?}"
        );
        let (low, high) = report.interval;
        assert!(
            (10.0..20.0).contains(&low) && high > 20.0 && high <= 30.0 + 1e-9,
            "{report:?}"
        );
        assert!(report.improvement_interval.0 >= 5.0 - 1e-9, "{report:?}");
        let named = named(&errors, &[column]);
        assert!((named["mae.mass_g"] - 20.0).abs() < 1e-9);
        assert!((named["mae_of_mean.mass_g"] - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_95_percent_interval_covers_the_true_mean_that_often() {
        let mut covered = 0;
        for trial in 0..200u64 {
            let stream = tape::Rng::new(5).at(trial);
            let errors = RegressionErrors {
                loss: 0.0,
                absolute: (0..60).map(|i| (stream.uniform(i), 1.0)).collect(),
            };
            let (low, high) = errors.bootstrap(|(error, _)| *error);
            covered += u32::from((low..high).contains(&0.5));
        }
        assert!((178..=199).contains(&covered), "{covered} of 200");
    }
}
