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
    #[error(
        "{op}: row {row} of the weight matrix has NaN or infinite values; load the weights again"
    )]
    NotFinite {
        /// The operation.
        op: &'static str,
        /// The first such row.
        row: usize,
    },
    /// A label outside the classes.
    #[error("label {label} of sample {row} is outside the range 0..{classes}")]
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
    #[error("{op}: index {index}, entry {place} of the list, is outside the range 0..{size}")]
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
        "this run differs from the recorded run after {at} operations whose slope jumps, such as ReLU; use the network and samples of the recorded run"
    )]
    DifferentRun {
        /// Operations with kinks before the difference.
        at: usize,
    },
    /// The device refused an allocation.
    #[error("the device refused an allocation: {0}")]
    Memory(String),
    /// The system stopped the device's work because it took too long or delayed the screen.
    #[error("the system stopped the GPU's work: {0}")]
    TooLong(String),
    /// The device ignores all further work.
    #[error("the GPU no longer accepts work: {0}")]
    Lost(String),
    /// The system raised an exception in the middle of the device's work. What the tensor library
    /// had begun stays incomplete, so this device cannot be used further.
    #[error("the system raised an exception: {0}")]
    Exception(String),
    /// The device cannot be used.
    #[error("{0}")]
    Device(String),
    /// Any other error of the tensor library.
    #[error(transparent)]
    Tensor(candle_core::Error),
}

/// What a device reports when it fails, by what can be done about it. In increasing severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceFault {
    /// Too little memory: a smaller micro-batch may fit.
    Memory,
    /// The work took too long, delayed the screen, or was discarded because another program's work
    /// failed: repeat it with half the samples and shorter command buffers.
    TooLong,
    /// The device ignores all further work, or its memory can no longer be trusted: make a new
    /// device and load the newest checkpoint.
    Lost,
}

impl DeviceFault {
    /// The fault that a driver's message reports, if it reports one. A message with several faults
    /// reports the most severe.
    fn in_message(message: &str) -> Option<DeviceFault> {
        let matching = FAULT_PHRASES
            .iter()
            .filter(|(_, phrases)| phrases.iter().any(|phrase| message.contains(phrase)));
        let known = matching.map(|&(fault, _)| fault).max();
        // A command buffer that failed for any other reason (an invalid resource, an error inside
        // the driver) may have written anything.
        known.or_else(|| {
            message
                .contains(FAILED_COMMAND_BUFFER)
                .then_some(DeviceFault::Lost)
        })
    }
}

/// What drivers write. Metal translates its descriptions but not the codes in parentheses, whose
/// prefix differs between systems (`kIOGPU…`, `kIOAccel…`). After a fault CUDA refuses all work of
/// the process, even after a kernel that took too long.
const FAULT_PHRASES: [(DeviceFault, &[&str]); 3] = [
    (
        DeviceFault::Memory,
        &[
            "OUT_OF_MEMORY",
            "out of memory",
            "OutOfMemory",
            "Insufficient Memory",
            // A buffer that is larger than the device allows, or that the system refused.
            "Failed to create metal resource",
            "CUBLAS_STATUS_ALLOC_FAILED",
        ],
    ),
    (
        DeviceFault::TooLong,
        &[
            "CallbackErrorImpactingInteractivity",
            "CallbackErrorTimeout",
            "CallbackErrorHang",
            "CallbackErrorInnocentVictim",
        ],
    ),
    (
        DeviceFault::Lost,
        &[
            "CallbackErrorSubmissionsIgnored",
            "CallbackErrorBlacklisted",
            "CallbackErrorAccessRevoked",
            "CallbackErrorDeviceRemoved",
            "CallbackErrorPageFault",
            "CallbackErrorStackOverflow",
            "CUDA_ERROR_LAUNCH_TIMEOUT",
            "CUDA_ERROR_LAUNCH_FAILED",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "CUDA_ERROR_ECC_UNCORRECTABLE",
            "CUDA_ERROR_CONTEXT_IS_DESTROYED",
            "CUDA_ERROR_DEVICE_UNAVAILABLE",
            "CUDA_ERROR_SYSTEM_NOT_READY",
        ],
    ),
];

/// How candle begins the message of a command buffer that failed.
const FAILED_COMMAND_BUFFER: &str = "Command buffer had following error";

/// What the message of a failed command buffer contains: candle's words, or Metal's code.
const COMMAND_BUFFER: [&str; 2] = ["Command buffer", "CommandBuffer"];

impl TapeError {
    /// The fault of the device that caused this error, if it was one. Anything else is a mistake in
    /// the request, which would fail again.
    pub fn device_fault(&self) -> Option<DeviceFault> {
        match self {
            TapeError::Memory(_) => Some(DeviceFault::Memory),
            TapeError::TooLong(_) => Some(DeviceFault::TooLong),
            TapeError::Lost(_) | TapeError::Exception(_) => Some(DeviceFault::Lost),
            _ => None,
        }
    }

    /// True if the system raised an exception. It is handled like a lost device, except by the
    /// device check: there it says that this operation cannot be computed.
    pub fn is_exception(&self) -> bool {
        matches!(self, TapeError::Exception(_))
    }

    /// True if the device reported a fault after the work was submitted: earlier work may have
    /// failed as well, and what it wrote is not valid. A refused allocation is reported at once.
    pub fn is_deferred_fault(&self) -> bool {
        match self {
            TapeError::Memory(message) => COMMAND_BUFFER.iter().any(|name| message.contains(name)),
            TapeError::TooLong(_) | TapeError::Lost(_) | TapeError::Exception(_) => true,
            _ => false,
        }
    }

    /// True if the device had too little memory: a smaller micro-batch may fit.
    pub fn is_memory(&self) -> bool {
        self.device_fault() == Some(DeviceFault::Memory)
    }

    /// True if the micro-batch was cancelled on purpose.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, TapeError::Cancelled)
    }
}

impl From<candle_core::Error> for TapeError {
    fn from(error: candle_core::Error) -> Self {
        let text = error.to_string();
        match DeviceFault::in_message(&text) {
            Some(DeviceFault::Memory) => TapeError::Memory(text),
            Some(DeviceFault::TooLong) => TapeError::TooLong(text),
            Some(DeviceFault::Lost) => TapeError::Lost(text),
            None => TapeError::Tensor(error),
        }
    }
}

#[cfg(test)]
mod tests;
