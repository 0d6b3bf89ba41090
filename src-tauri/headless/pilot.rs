//! `ebb pilot`: the controller flown from outside, a JSON line at a time. The rules are in `pressure`.

use super::args::{self, MicroBatch};
use super::failure::Failure;
use pressure::{JsonlController, Policy};
use std::io::{BufRead, Write};

/// The top-level entry point of `ebb pilot`. Ends with its input; a bad line is wrong usage.
pub fn run(args: &args::Pilot) -> Result<(), Failure> {
    let standard = Policy::default();
    let mut pilot = JsonlController::new(Policy {
        memory_cap_bytes: args.limits.memory_cap,
        memory_cap_fraction: args.limits.memory_target,
        max_system_fraction: args.limits.max_system_fraction.unwrap_or(standard.max_system_fraction),
        fixed_micro_batch: match args.micro_batch {
            Some(MicroBatch::Fixed(size)) => Some(size),
            _ => None,
        },
        ..standard
    });
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::usage(format!("a line is no text: {error}")))?;
        let answers = pilot
            .handle_line(&line)
            .map_err(|error| Failure::usage(error.to_string()))?;
        for answer in answers {
            // Whoever asks waits for the answer; whoever has gone away has no more questions.
            if writeln!(out, "{answer}")
                .and_then(|()| out.flush())
                .is_err()
            {
                return Ok(());
            }
        }
    }
    Ok(())
}
