//! Amounts as a user reads and writes them, for the rest of this crate. See the `format` crate.

use crate::RunlogError;
pub use format::{
    MISSING, counted, format_bytes, format_count, format_duration, format_in_unit, format_io_error,
    format_percent, most_like, nearest,
};

/// Reads "8GB", "1.5 GB", "512MB", "64kB" or plain bytes. A GB is 2^30 bytes.
///
/// # Errors
/// The text is not a size of memory.
pub fn parse_bytes(text: &str) -> Result<u64, RunlogError> {
    format::parse_bytes(text).map_err(|format::NotASize { text }| RunlogError::NotASize { text })
}
