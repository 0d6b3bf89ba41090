//! Runs a test again in a child process with little memory: a refused allocation aborts the
//! process, which no test can catch.

use std::ffi::OsStr;
use std::process::Command;

/// Environment variable of the child process. The test decides what its value means.
pub const CHILD: &str = "EBB_TEST_CHILD";

/// Runs the calling test again in a child process that may use `kilobytes` of address space.
/// [`CHILD`] has `value` there. The child prints `done` at its end.
///
/// # Panics
/// The child fails, or does not print `done`.
pub fn run_in_small_child(kilobytes: u64, value: impl AsRef<OsStr>, done: &str) {
    let thread = std::thread::current();
    // macOS has no such limit; what the child expects is checked there all the same.
    let limited =
        format!("ulimit -v {kilobytes} 2>/dev/null; exec \"$0\" --exact \"$1\" --nocapture");
    let out = Command::new("sh")
        .args(["-c", limited.as_str()])
        .arg(std::env::current_exe().expect("the test has a path"))
        .arg(thread.name().expect("test threads have names"))
        .env(CHILD, value)
        .output()
        .expect("sh can be started");
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && text.contains(done),
        "{} {text}",
        out.status
    );
}
