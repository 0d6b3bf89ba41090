//! macOS: `statfs`, because the block counts of `statvfs` have 32 bits there, so that a volume of
//! 16 TiB can look full. Same interface as `other.rs`.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that the user may still write on the volume of `path`.
///
/// # Errors
/// There is nothing at `path`, or its volume does not answer.
pub fn available_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut volume = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` ends in NUL and `volume` is writable and as long as the call expects.
    if unsafe { libc::statfs(path.as_ptr(), volume.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded and filled the struct of plain numbers, which was zeroed before.
    let volume = unsafe { volume.assume_init() };
    Ok(volume.f_bavail.saturating_mul(volume.f_bsize.into()))
}
