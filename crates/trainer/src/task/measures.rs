//! What a task measures beside its loss, as sums: by name what was added up and what it is to be divided by. No mean is formed
//! before the last piece is in.

use crate::skipped::Skipped;
use std::collections::BTreeMap;

/// Sums by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums(BTreeMap<&'static str, (f64, f64)>);

impl Sums {
    /// Adds to a sum, and to what it is divided by.
    pub fn put(&mut self, name: &'static str, sum: f64, weight: f64) {
        let entry = self.0.entry(name).or_default();
        (entry.0, entry.1) = (entry.0 + sum, entry.1 + weight);
    }

    /// Adds those of another piece.
    pub fn add(&mut self, other: &Sums) {
        other
            .0
            .iter()
            .for_each(|(name, (sum, weight))| self.put(name, *sum, *weight));
    }

    /// The mean of each; 0 where nothing was weighed.
    pub fn means(&self) -> BTreeMap<String, f64> {
        let mean = |(name, (sum, weight)): (&&'static str, &(f64, f64))| {
            let mean = if *weight > 0.0 { sum / weight } else { 0.0 };
            ((*name).to_owned(), mean)
        };
        self.0.iter().map(mean).collect()
    }

    /// The means of a step, and how many values of its gradients were not finite; nothing where nothing was measured.
    pub fn of_step(&self, skipped: Option<&Skipped>) -> BTreeMap<String, f64> {
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
