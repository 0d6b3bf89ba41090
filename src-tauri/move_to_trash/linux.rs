//! Linux: the trash of the desktop, in the home folder or on the disk of the run. Same function as
//! `macos.rs`.

use std::path::Path;

/// Moves a folder to the trash.
pub fn move_to_trash(path: &Path) -> Result<(), trash::Error> {
    trash::delete(path)
}
