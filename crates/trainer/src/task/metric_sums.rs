//! Metrics of a task beside its loss, as sums: for each name, the sum and its divisor. The means
//! are computed after the last micro-batch.

use crate::skipped_steps::Skipped;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Sums and their weights by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricSums(BTreeMap<Cow<'static, str>, (f64, f64)>);

impl MetricSums {
    pub fn add_to(&mut self, name: impl Into<Cow<'static, str>>, sum: f64, weight: f64) {
        let entry = self.0.entry(name.into()).or_default();
        (entry.0, entry.1) = (entry.0 + sum, entry.1 + weight);
    }

    /// Adds the sums of another micro-batch.
    pub fn add(&mut self, other: &MetricSums) {
        for (name, (sum, weight)) in &other.0 {
            self.add_to(name.clone(), *sum, *weight);
        }
    }

    /// Each metric with its sum and its weight, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, (f64, f64))> {
        self.0.iter().map(|(name, sums)| (&**name, *sums))
    }

    /// The mean of each metric; 0 if its weight is 0.
    pub fn means(&self) -> BTreeMap<String, f64> {
        let mean = |(name, (sum, weight)): (&Cow<'static, str>, &(f64, f64))| {
            let mean = if *weight > 0.0 { sum / weight } else { 0.0 };
            (name.clone().into_owned(), mean)
        };
        self.0.iter().map(mean).collect()
    }

    /// The means of a step and the number of its non-finite gradient values; empty if the task has
    /// no further metrics.
    pub(crate) fn of_step(&self, skipped: Option<&Skipped>) -> BTreeMap<String, f64> {
        let mut means = self.means();
        if !means.is_empty() {
            let gradients = skipped.map_or(&[][..], |skipped| &skipped.gradients);
            let nan: u64 = gradients.iter().map(|gradient| gradient.nan).sum();
            let infinite: u64 = gradients.iter().map(|gradient| gradient.infinite).sum();
            means.insert("nan_gradients".to_owned(), nan as f64);
            means.insert("infinite_gradients".to_owned(), infinite as f64);
        }
        means
    }
}
