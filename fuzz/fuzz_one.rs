//! Runs one reader on one input. A panic that the reader catches is no finding: it costs the user
//! one file. Every other panic ends the process.

#[allow(dead_code, reason = "the tests call more of it")]
#[path = "../tests/hostile_files/readers.rs"]
mod readers;

use std::panic::set_hook;
use std::sync::Once;

static HOOK: Once = Once::new();

/// Reads `bytes` with the reader of this name.
pub fn read(name: &str, bytes: &[u8]) {
    // The library's own hook ends the process at every panic, also at one that is caught.
    HOOK.call_once(|| set_hook(Box::new(|panic| eprintln!("{panic}"))));
    // A refusal is as good as a result.
    let _ = readers::reader(name)(bytes);
}
