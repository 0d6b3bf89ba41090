//! A column of regression targets, and the statistics that training standardizes it by.

use serde::{Deserialize, Serialize};

/// A regression target that is learned from images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetColumn {
    /// The column's name, which often tells its unit: `mass_g`.
    pub name: String,
    /// Mean over the training images, in the column's unit.
    pub mean: f64,
    /// Standard deviation over the training images, in the column's unit; above 0.
    pub deviation: f64,
    /// Number of training images that have a value.
    pub present: u64,
    /// Smallest and largest value in the training images.
    pub range: (f64, f64),
}

impl TargetColumn {
    /// Computes the statistics of the training values. `None` if they are all equal.
    pub(crate) fn from_training_values(name: &str, values: &[f64]) -> Option<Self> {
        let n = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let deviation = variance.sqrt();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (deviation > 0.0 && deviation.is_finite()).then(|| TargetColumn {
            name: name.to_owned(),
            mean,
            deviation,
            present: values.len() as u64,
            range: (min, max),
        })
    }

    /// Converts a value in the column's unit to standard deviations from the mean.
    pub(crate) fn standardize(&self, value: f64) -> f64 {
        (value - self.mean) / self.deviation
    }

    /// Converts standard deviations from the mean to a value in the column's unit.
    pub fn unstandardize(&self, standardized: f64) -> f64 {
        standardized * self.deviation + self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_standardized_by_its_training_values() {
        let column = TargetColumn::from_training_values("mass_g", &[10.0, 20.0, 30.0])
            .expect("the values differ");
        assert!((column.mean - 20.0).abs() < 1e-12 && column.range == (10.0, 30.0));
        let mean: f64 = [10.0, 20.0, 30.0]
            .iter()
            .map(|v| column.standardize(*v).powi(2))
            .sum();
        assert!((mean / 3.0 - 1.0).abs() < 1e-12);
        assert!((column.unstandardize(column.standardize(17.0)) - 17.0).abs() < 1e-12);
        assert_eq!(
            TargetColumn::from_training_values("mass_g", &[3.0, 3.0]),
            None
        );
        assert_eq!(TargetColumn::from_training_values("mass_g", &[]), None);
    }
}
