//! What can go wrong on the tape, in the words of whoever meets it.

use candle_core::{DType, Shape};
use thiserror::Error;

/// Result of everything on the tape.
pub type Result<T> = std::result::Result<T, TapeError>;

/// An operation that did not happen. Whatever it was part of has touched nothing.
#[derive(Debug, Error)]
pub enum TapeError {
    /// The cancel flag was raised; nothing was changed.
    #[error("the piece was cancelled")]
    Cancelled,
    /// Shapes that do not go together.
    #[error("{op}: {what} has shape {found:?} but {expected} is needed")]
    Shape {
        /// Operation.
        op: &'static str,
        /// Which operand, with the parameter's name where there is one.
        what: String,
        /// What would fit.
        expected: String,
        /// What came.
        found: Shape,
    },
    /// An operand whose element type the operation has no kernel for.
    #[error("{op}: no kernel for {dtype:?}; use f32 or f64")]
    Type {
        /// Operation.
        op: &'static str,
        /// Element type that came.
        dtype: DType,
    },
    /// A weight that holds NaN or infinite values.
    #[error("{op}: row {row} of the weight holds values that are not finite; load it again")]
    NotFinite {
        /// Operation.
        op: &'static str,
        /// First such row.
        row: usize,
    },
    /// A label outside the classes.
    #[error("label {label} of sample {row} is outside 0..{classes}")]
    Label {
        /// Row of the piece.
        row: usize,
        /// The label.
        label: u32,
        /// Number of classes.
        classes: usize,
    },
    /// A target or a setting that nothing can be computed from.
    #[error("{op}: {what} is {found} but {expected} is needed")]
    Number {
        /// Operation.
        op: &'static str,
        /// Which number: `the target 3 of sample 2`.
        what: String,
        /// What would do.
        expected: &'static str,
        /// What came.
        found: f64,
    },
    /// An index outside the axis that it chooses from.
    #[error("{op}: index {index} at place {place} is outside 0..{size}")]
    Index {
        /// Operation.
        op: &'static str,
        /// Place among the indices.
        place: usize,
        /// The index.
        index: u32,
        /// Size of the axis.
        size: usize,
    },
    /// A run that follows another one's branches, but does not do what that did.
    #[error(
        "operation {at} of those with kinks is not what the recorded run had there; follow a run of the same network on the same samples"
    )]
    DifferentRun {
        /// Operations with kinks before it.
        at: usize,
    },
    /// The device refused an allocation.
    #[error("the device refused an allocation: {0}")]
    Memory(String),
    /// The device cannot be used.
    #[error("{0}")]
    Device(String),
    /// Anything else the tensor library reports.
    #[error(transparent)]
    Tensor(candle_core::Error),
}

impl TapeError {
    /// The device had no memory: a smaller piece may fit.
    pub fn is_memory(&self) -> bool {
        matches!(self, TapeError::Memory(_))
    }

    /// The piece was cancelled on purpose.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, TapeError::Cancelled)
    }
}

/// Phrases by which drivers say "out of memory": CUDA's error name, Metal's buffer creation and command-buffer errors.
const MEMORY_PHRASES: [&str; 5] = [
    "OUT_OF_MEMORY",
    "out of memory",
    "FailedToCreateResource",
    "OutOfMemory",
    "Insufficient Memory",
];

impl From<candle_core::Error> for TapeError {
    fn from(error: candle_core::Error) -> Self {
        let text = error.to_string();
        if MEMORY_PHRASES.iter().any(|phrase| text.contains(phrase)) {
            return TapeError::Memory(text);
        }
        TapeError::Tensor(error)
    }
}
