//! `fsync` on other systems. Same surface as `macos.rs`.

use std::fs::File;
use std::io;

/// Syncs the file. There is no weaker way here.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn sync(file: &File) -> io::Result<()> {
    file.sync_all()
}
