//! Errors of the CUDA driver and its libraries as errors of the tape.

use crate::error::TapeError;

/// The message of a CUDA error.
pub(super) fn failed(error: impl std::fmt::Display) -> TapeError {
    TapeError::from(candle_core::Error::Msg(error.to_string()))
}
