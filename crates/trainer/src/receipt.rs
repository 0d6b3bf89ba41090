//! The receipt: the gradient of one effective batch, worked off in several splits, against the unsplit one, parameter by
//! parameter. `difference = |split - unsplit| / |unsplit|`, Euclidean norms over all values of a parameter's mean gradient.
//!
//! Refuses to know how a gradient comes about: a piece is a function of a range of samples.

mod split;
mod compare;
mod room;
mod subject;

pub use compare::{Compared, Line, compare};
pub use split::{Split, Splits};
pub use subject::{Question, of_folder, of_run, of_workload};

use serde::Serialize;

/// Element type of the computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Precision {
    /// As in training.
    #[default]
    #[serde(rename = "f32")]
    Single,
    /// Tells rounding from a law that is broken.
    #[serde(rename = "f64")]
    Double,
}

impl Precision {
    /// The name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Single => "f32",
            Precision::Double => "f64",
        }
    }

    /// Largest difference of a gradient or loss that rounding explains. Sums over samples and tokens are added in another
    /// order when the split changes, which costs about the root of their number in units of 6e-8 or 1e-16; gradients of
    /// single samples that nearly cancel make that a larger share. What depends on a split differs by percents.
    pub fn bound(self) -> f64 {
        match self {
            Precision::Single => 1e-4,
            Precision::Double => 1e-13,
        }
    }
}

/// What came out for one network on one effective batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Receipt {
    /// What was examined: a workload, a folder, or a run at its step.
    pub subject: String,
    /// `metal`, `cuda` or `cpu`.
    pub device: &'static str,
    /// Element type.
    pub precision: Precision,
    /// The differences.
    #[serde(flatten)]
    pub compared: Compared,
    /// What was left out on the way, in sentences.
    pub notes: Vec<String>,
}

impl Receipt {
    /// Every difference is explained by rounding.
    pub fn holds(&self) -> bool {
        self.compared.worst().difference <= self.precision.bound()
    }

    /// What it comes to, in one sentence.
    pub fn verdict(&self) -> String {
        let (worst, bound) = (self.compared.worst(), self.precision.bound());
        let (name, split, precision) = (&worst.name, &worst.split, self.precision.name());
        if self.holds() {
            return format!(
                "the split does not change the training: {name} differs most, by {:.1e} in pieces of {split}; rounding in {precision} explains up to {bound:.0e}",
                worst.difference
            );
        }
        let next = match self.precision {
            Precision::Single => {
                "; --double tells whether it is rounding of gradients that nearly cancel"
            }
            Precision::Double => "",
        };
        format!(
            "the split changes the training: {name} differs by {:.1e} in pieces of {split}, and rounding in {precision} explains {bound:.0e} only{next}",
            worst.difference
        )
    }
}
