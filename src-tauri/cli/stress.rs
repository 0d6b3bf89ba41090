//! `ebb stress`: takes memory for a while, so that users can watch how training reacts.

use super::args;
use super::failure::Failure;
use super::output::out;
use crate::stress_test::{Drill, hold};
use runlog::format_bytes;

/// Runs `ebb stress`.
pub fn run(args: &args::Stress) -> Result<(), Failure> {
    let mut drill = Drill::begin(args.size, args.seconds).map_err(Failure::new)?;
    let size = format_bytes(drill.bytes);
    out!(
        "Taking {size} of memory for {} s. If Ebb is training, it now frees memory. Press Ctrl-C to give the memory back at once.",
        args.seconds
    );
    if drill.wait() {
        out!("Gave {size} back.")
    } else {
        out!("Gave the memory back early, because other apps needed it.")
    }
    Ok(())
}

/// Holds the memory; runs in the child process of `ebb stress`.
pub fn hold_memory(args: &args::StressHold) -> Result<(), Failure> {
    if hold(args.bytes, args.seconds) {
        Ok(())
    } else {
        Err(Failure::new(
            "the stress test ended early, because other apps needed the memory",
        ))
    }
}
