//! Checks that the sizes of the micro-batches do not change the gradient: the gradient of one
//! effective batch, computed in several splits, is compared with the unsplit gradient, parameter by
//! parameter.
//!
//! `difference = |split - unsplit| / |unsplit|`, with Euclidean norms over all values of a
//! parameter's mean gradient.

mod compare;
mod fits_in_memory;
mod splits_to_try;
mod run_check;

pub use compare::{Comparison, Difference, compare};
pub use run_check::SplitCheckOptions;
pub use splits_to_try::{BatchSplit, SplitSelection};
pub use trainer::ElementType;

use serde::Serialize;

/// Largest difference of a gradient or loss that rounding explains.
///
/// Another split adds samples and tokens in another order. That costs about the square root of
/// their number in units of 6e-8 (f32) or 1e-16 (f64), and a larger fraction if the gradients of
/// single samples nearly cancel. A run that depends on the split differs by percents.
pub fn rounding_bound(element_type: ElementType) -> f64 {
    match element_type {
        ElementType::Single => 1e-4,
        ElementType::Double => 1e-13,
    }
}

/// Result for one network and one effective batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitCheck {
    /// The workload, the folder, or the run and its step.
    pub subject: String,
    /// `metal`, `cuda` or `cpu`.
    pub device: &'static str,
    /// Element type, which decides the bound.
    pub precision: ElementType,
    #[serde(flatten)]
    /// Differences by parameter.
    pub comparison: Comparison,
    /// One sentence for each sample or checkpoint that was skipped.
    pub notes: Vec<String>,
}

impl SplitCheck {
    /// Whether rounding explains every difference.
    pub fn passed(&self) -> bool {
        self.comparison.worst().difference <= rounding_bound(self.precision)
    }

    /// The result in one sentence.
    pub fn summary(&self) -> String {
        let (worst, bound) = (self.comparison.worst(), rounding_bound(self.precision));
        let (name, split, precision) = (&worst.name, &worst.split, self.precision.name());
        if self.passed() {
            return format!(
                "the sizes of the micro-batches do not change the gradient: the largest difference is {:.1e} (in {name}, with micro-batches of {split} samples), and rounding in {precision} explains differences up to {bound:.0e}",
                worst.difference
            );
        }
        let next = match self.precision {
            ElementType::Single => {
                "; run again with --double: if every split then gives the same gradient, the difference is only rounding, which is large when the gradients of single samples nearly cancel"
            }
            ElementType::Double => "",
        };
        format!(
            "the sizes of the micro-batches change the gradient: {name} differs by {:.1e} with micro-batches of {split} samples, but rounding in {precision} explains differences only up to {bound:.0e}{next}",
            worst.difference
        )
    }
}
