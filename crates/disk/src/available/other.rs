//! Elsewhere than on macOS, `fs4` asks the system with 64 bits.

use std::io;
use std::path::Path;

/// Bytes that the user may still write on the volume of `path`.
///
/// # Errors
/// There is nothing at `path`, or its volume does not answer.
pub fn available_bytes(path: &Path) -> io::Result<u64> {
    fs4::available_space(path)
}
