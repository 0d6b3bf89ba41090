//! Checks that the committed TypeScript types match the Rust types, for tests only.

use std::path::Path;
use std::{fs, io};
use ts_rs::{Config, ExportError};

/// Environment variable that makes [`check`] rewrite the committed files.
pub const UPDATE: &str = "EBB_UPDATE_BINDINGS";

/// Calls `export` to write the types into the empty folder `fresh` and compares each file with the
/// one in `committed`. With `EBB_UPDATE_BINDINGS=1` files that differ are rewritten instead.
///
/// # Errors
/// Names the first file that differs and how to rewrite it.
pub fn check(
    committed: &Path,
    fresh: &Path,
    export: impl FnOnce(&Config) -> Result<(), ExportError>,
) -> Result<(), String> {
    // Counts stay far below 2^53, so a JavaScript number represents them exactly.
    let config = Config::new().with_large_int("number").with_out_dir(fresh);
    export(&config).map_err(|e| format!("the types could not be written: {e}"))?;
    compare(committed, fresh).map_err(|e| format!("{}: {e}", committed.display()))?
}

fn compare(committed: &Path, fresh: &Path) -> io::Result<Result<(), String>> {
    let update = std::env::var_os(UPDATE).is_some_and(|v| v == "1");
    // tidy: not durable: files of this project
    for entry in fs::read_dir(fresh)? {
        let entry = entry?;
        let twin = committed.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if let differs @ Err(_) = compare(&twin, &entry.path())? {
                return Ok(differs);
            }
            continue;
        }
        // tidy: unbounded: files of this project
        let written = fs::read(entry.path())?;
        // tidy: unbounded: files of this project
        if fs::read(&twin).is_ok_and(|old| old == written) {
            continue;
        }
        if !update {
            let file = twin.display();
            return Ok(Err(format!(
                "{file} does not match the Rust types. Run this test with {UPDATE}=1 and commit the file."
            )));
        }
        // tidy: not durable: source code
        fs::create_dir_all(committed)?;
        // tidy: not durable: source code
        fs::write(&twin, written)?;
    }
    Ok(Ok(()))
}
