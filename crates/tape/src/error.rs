//! Errors of the tape.

use candle_core::{DType, Shape};
use thiserror::Error;

/// Result of every function of this crate.
pub type Result<T> = std::result::Result<T, TapeError>;

/// An operation that was not done. Nothing has been changed.
#[derive(Debug, Error)]
pub enum TapeError {
    /// The cancel flag was raised.
    #[error("the micro-batch was cancelled")]
    Cancelled,
    /// Shapes that do not fit.
    #[error("{op}: {what} has shape {found:?} but {expected} is needed")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The operand, with the parameter's name if it has one.
        what: String,
        /// The shape that would fit.
        expected: String,
        /// The shape of the operand.
        found: Shape,
    },
    /// An operand whose element type the operation does not support.
    #[error("{op}: no kernel for {dtype:?}; use f32 or f64")]
    Type {
        /// The operation.
        op: &'static str,
        /// The element type of the operand.
        dtype: DType,
    },
    /// A weight that holds NaN or infinite values.
    #[error("{op}: row {row} of the weight holds values that are not finite; load it again")]
    NotFinite {
        /// The operation.
        op: &'static str,
        /// The first such row.
        row: usize,
    },
    /// A label outside the classes.
    #[error("label {label} of sample {row} is outside 0..{classes}")]
    Label {
        /// Row in the micro-batch.
        row: usize,
        /// The label.
        label: u32,
        /// Number of classes.
        classes: usize,
    },
    /// A target or a setting out of range.
    #[error("{op}: {what} is {found} but {expected} is needed")]
    Number {
        /// The operation.
        op: &'static str,
        /// The number: `the target 3 of sample 2`.
        what: String,
        /// The allowed range.
        expected: &'static str,
        /// The given number.
        found: f64,
    },
    /// An index outside its axis.
    #[error("{op}: index {index} at place {place} is outside 0..{size}")]
    Index {
        /// The operation.
        op: &'static str,
        /// Position in the list of indices.
        place: usize,
        /// The index.
        index: u32,
        /// Size of the axis.
        size: usize,
    },
    /// A run that follows a kink log, but is not a repetition of the recorded run.
    #[error(
        "operation {at} of those with kinks differs from that of the recorded run; follow a run of the same network on the same samples"
    )]
    DifferentRun {
        /// Operations with kinks before the difference.
        at: usize,
    },
    /// The device refused an allocation.
    #[error("the device refused an allocation: {0}")]
    Memory(String),
    /// The device cannot be used.
    #[error("{0}")]
    Device(String),
    /// Any other error of the tensor library.
    #[error(transparent)]
    Tensor(candle_core::Error),
}

impl TapeError {
    /// True if the device had too little memory: a smaller micro-batch may fit.
    pub fn is_memory(&self) -> bool {
        matches!(self, TapeError::Memory(_))
    }

    /// True if the micro-batch was cancelled on purpose.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, TapeError::Cancelled)
    }
}

/// Phrases that drivers use for "out of memory": CUDA's error name, and those of Metal's buffers
/// and command buffers.
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
