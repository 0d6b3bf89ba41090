//! The flag `--config FILE`. `-` and `/dev/stdin` mean standard input.

use super::output::status;
use runlog::{RunConfig, RunlogError};
use std::path::Path;

/// Names of standard input.
const STANDARD_INPUT: [&str; 2] = ["-", "/dev/stdin"];

/// Whether `path` means standard input, which can be read only once.
pub fn is_standard_input(path: &Path) -> bool {
    STANDARD_INPUT.iter().any(|name| path == Path::new(name))
}

/// Reads the config that the user names; without one, no key is set. Prints a message for each key
/// that has another name today.
///
/// # Errors
/// The file cannot be read, or a key, type or value is wrong; the message names the line.
pub fn read_config(path: Option<&Path>) -> Result<RunConfig, RunlogError> {
    let Some(path) = path else {
        return Ok(RunConfig::default());
    };
    let (config, notes) = if is_standard_input(path) {
        RunConfig::read_with_notes(std::io::stdin().lock(), "standard input")?
    } else {
        RunConfig::load_with_notes(path)?
    };
    for note in notes {
        status!("{note}");
    }
    Ok(config)
}
