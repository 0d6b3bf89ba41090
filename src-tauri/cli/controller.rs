//! `ebb controller`: runs the memory controller on JSON lines from stdin. The rules are in
//! `pressure`.

use super::args;
use super::failure::Failure;
use pressure::{JsonlController, Policy};
use std::io::{BufRead, Read, Write};

/// Most bytes of a line. A sample has a few hundred.
const MAX_LINE_BYTES: u64 = 1 << 20;

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
    let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
    while let Some(line) = read_line(&mut input)? {
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

/// Reads the next line without its end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let mut line = String::new();
    let read = input
        .take(MAX_LINE_BYTES)
        .read_line(&mut line)
        .map_err(|error| Failure::usage(format!("a line is not text: {error}")))?;
    if read as u64 == MAX_LINE_BYTES && !line.ends_with('\n') {
        return Err(Failure::usage(
            "a line is longer than 1 MB; write one JSON object (sample, micro_batch or ask) per line",
        ));
    }
    let text = line.trim_end_matches(['\r', '\n']);
    Ok((read > 0).then(|| text.to_owned()))
}
