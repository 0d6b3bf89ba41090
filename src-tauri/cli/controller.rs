//! `ebb controller`: runs the memory controller on JSON lines from stdin. The rules are in
//! `pressure`.

use super::args;
use super::failure::Failure;
use pressure::{JsonlController, Policy};
use std::io::{BufRead, Write};

/// Runs `ebb controller` until its input ends. An invalid input line ends the command with exit
/// code 2.
pub fn run(args: &args::Controller) -> Result<(), Failure> {
    let standard = Policy::default();
    let config = &args.settings.config;
    let mut controller = JsonlController::new(Policy {
        memory_cap_bytes: config.memory_cap_bytes,
        memory_cap_fraction: config.memory_cap_fraction,
        max_system_fraction: config
            .max_system_fraction
            .unwrap_or(standard.max_system_fraction),
        fixed_micro_batch: config.micro_batch,
        ..standard
    });
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::usage(format!("a line is not text: {error}")))?;
        let answers = controller
            .handle_line(&line)
            .map_err(|error| Failure::usage(error.to_string()))?;
        for answer in answers {
            // The caller waits for the answer. If it closed the pipe, it asks no more.
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
