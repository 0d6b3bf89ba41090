//! `fsync` on macOS. Same surface as `other.rs`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Hands the data to the drive without emptying its cache. The standard library always asks for
/// both.
pub fn sync(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` lives.
    match unsafe { libc::fsync(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
