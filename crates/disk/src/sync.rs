//! Syncs files and folders on every kind of volume.

use crate::plain_sync;
use std::fs::File;
use std::io::{self, ErrorKind};

/// Error numbers with which a volume on macOS or Linux refuses a sync: `EINVAL`, `ENOTTY`, and the
/// three numbers of `ENOTSUP`.
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
}
