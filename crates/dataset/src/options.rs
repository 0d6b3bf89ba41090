//! Options for reading a dataset.

use crate::class_selection::ClassSelection;
use crate::error::DatasetError;
use crate::task::Task;
use crate::types::ReadProgress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The seed of every random choice if the user gives none.
pub const DEFAULT_SEED: u64 = 7;
/// The largest fraction that can be held out.
const MAX_HELD_OUT_FRACTION: f64 = 0.9;

/// How a dataset is split, and how tables beside images are read.
#[derive(Debug, Clone, PartialEq)]
pub struct InspectOptions {
    /// Fraction of each class to hold out if the dataset brings no split of its own, `0.0..=0.9`.
    pub held_out_fraction: f64,
    /// Seed that chooses the held-out samples.
    pub seed: u64,
    /// How tables beside images are read.
    pub table: TableOptions,
    /// Which classes are used.
    pub classes: ClassSelection,
    /// Whether only one of samples that are the same or nearly the same is used.
    pub leave_duplicates_out: bool,
    /// Ends the reading before it is complete.
    pub stop: StopReading,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self {
            held_out_fraction: 0.2,
            seed: DEFAULT_SEED,
            table: TableOptions::default(),
            classes: ClassSelection::default(),
            leave_duplicates_out: false,
            stop: StopReading::default(),
        }
    }
}

impl InspectOptions {
    /// The held-out fraction, clamped to its range. NaN holds nothing out.
    pub(crate) fn fraction(&self) -> f64 {
        if self.held_out_fraction.is_nan() {
            0.0
        } else {
            self.held_out_fraction.clamp(0.0, MAX_HELD_OUT_FRACTION)
        }
    }
}

/// Ends the reading of a dataset, from any thread. Clones end the same reading.
#[derive(Debug, Clone, Default)]
pub struct StopReading(Arc<AtomicBool>);

impl StopReading {
    /// Makes the reading end with [`DatasetError::Stopped`] after the next few files.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the reading shall end.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A function that reports progress and returns whether the reading goes on.
    pub(crate) fn after(
        &self,
        on_progress: &dyn Fn(ReadProgress),
    ) -> impl Fn(ReadProgress) -> bool {
        move |read| {
            on_progress(read);
            !self.is_stopped()
        }
    }

    /// # Errors
    /// [`DatasetError::Stopped`] if the reading shall end.
    pub(crate) fn check(&self) -> Result<(), DatasetError> {
        if self.is_stopped() {
            Err(DatasetError::Stopped)
        } else {
            Ok(())
        }
    }
}

/// It does not change what is read.
impl PartialEq for StopReading {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// How tables beside images are read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableOptions {
    /// The class column, by name or by its number counted from 1.
    pub label_column: Option<String>,
    /// The column that groups images, or `none` to keep no group together.
    pub group_by: Option<String>,
    /// Columns of regression targets. If absent, every numeric column is one.
    pub targets: Option<Vec<String>>,
}

impl TableOptions {
    /// The grouping column that the user names; `none` names none.
    pub(crate) fn group_column(&self) -> Option<&String> {
        self.group_by.as_ref().filter(|name| *name != "none")
    }
}

/// How texts are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// The task, if the user names one.
    pub task: Option<Task>,
    /// The text column, by name or by its number counted from 1.
    pub text_column: Option<String>,
    /// The label column, by name or by its number counted from 1.
    pub label_column: Option<String>,
}
