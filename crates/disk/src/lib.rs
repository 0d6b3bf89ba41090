//! Files that survive a power failure, on every kind of volume.

#[cfg_attr(target_os = "macos", path = "available/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "available/other.rs")]
mod available;
#[cfg_attr(target_os = "macos", path = "plain_sync/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "plain_sync/other.rs")]
mod plain_sync;

pub use available::available_bytes;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Error numbers by which a volume refuses to sync as asked, on macOS and Linux: `EINVAL`,
/// `ENOTTY`, and `ENOTSUP` under the three numbers it has there.
const REFUSALS: [i32; 5] = [22, 25, 45, 95, 102];

/// Waits until the content and length of `file` are on the disk.
///
/// On macOS this also empties the cache of the drive (`F_FULLFSYNC`). Volumes that cannot do that,
/// such as exFAT and SMB shares, are synced as far as they can be.
///
/// # Errors
/// The disk is full or failed.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn sync(file: &File) -> io::Result<()> {
    sync_with(|| file.sync_all(), || plain_sync::sync(file))
}

/// Like [`sync`], without the times of the file.
///
/// # Errors
/// The disk is full or failed.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn sync_data(file: &File) -> io::Result<()> {
    sync_with(|| file.sync_data(), || plain_sync::sync(file))
}

/// Waits until the file or the entries of the folder at `path` are on the disk.
///
/// # Errors
/// `path` cannot be opened, or the disk is full or failed.
pub fn sync_path(path: &Path) -> io::Result<()> {
    sync(&File::open(path)?)
}

/// Syncs by `full`, or by `plain` if the volume refuses the former. A volume that refuses both
/// has no stronger guarantee than that it accepted the data.
fn sync_with(
    full: impl FnOnce() -> io::Result<()>,
    plain: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    match full() {
        Err(error) if is_refusal(&error) => match plain() {
            Err(error) if is_refusal(&error) => Ok(()),
            done => done,
        },
        done => done,
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
        || error
            .raw_os_error()
            .is_some_and(|number| REFUSALS.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The result if the two ways of syncing end with these error numbers, 0 for success, and
    /// whether the plain way was tried.
    fn outcome(full: i32, plain: i32) -> (Option<i32>, bool) {
        let ended = |number| match number {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number)),
        };
        let tried = Cell::new(false);
        let result = sync_with(
            || ended(full),
            || {
                tried.set(true);
                ended(plain)
            },
        );
        let number = result.err().map(|error| error.raw_os_error().unwrap_or(-1));
        (number, tried.get())
    }

    #[test]
    fn a_volume_that_refuses_a_full_sync_gets_a_plain_one() {
        assert_eq!(outcome(0, 5), (None, false), "the disk did it");
        for refusal in REFUSALS {
            assert_eq!(outcome(refusal, 0), (None, true));
            assert_eq!(outcome(refusal, refusal), (None, true));
        }
    }

    #[test]
    fn a_full_or_failed_disk_is_an_error() {
        let (eio, enospc) = (5, 28);
        assert_eq!(outcome(eio, 0), (Some(eio), false));
        assert_eq!(outcome(enospc, 0), (Some(enospc), false));
        assert_eq!(outcome(45, eio), (Some(eio), true));
    }

    #[test]
    fn files_and_folders_can_be_synced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "content").expect("it can be written");
        let file = File::open(&path).expect("it is there");
        sync(&file).expect("a file can be synced");
        sync_data(&file).expect("a file can be synced");
        sync_path(folder.path()).expect("a folder can be synced");
        let missing = sync_path(&folder.path().join("missing"));
        assert!(missing.is_err_and(|error| error.kind() == ErrorKind::NotFound));
    }

    #[test]
    fn the_space_of_a_volume_is_known_and_that_of_nothing_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(available_bytes(folder.path()).is_ok_and(|bytes| bytes > 0));
        assert!(available_bytes(&folder.path().join("missing")).is_err());
    }
}
