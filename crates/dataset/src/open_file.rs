//! Opens a file of the dataset. The file may have been replaced since the folder was listed.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file to read it.
///
/// # Errors
/// The system refuses, or it is a pipe or a device: opening a pipe would block forever.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let kind = path.metadata()?.file_type();
    if kind.is_file() || kind.is_dir() {
        return File::open(path);
    }
    Err(io::Error::other("it is a pipe or a device, not a file"))
}
