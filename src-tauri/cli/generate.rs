//! `ebb generate`: continues a text with the language model of a run's best checkpoint.

use super::args;
use super::failure::Failure;
use super::output::out;
use super::train::find;
use crate::paths::device_check_path;
use trainer::{DevicePreference, GenerationOptions, TrainedModel};

/// Runs `ebb generate`. The same prompt, options and seed give the same text.
pub fn run(args: &args::Generate) -> Result<(), Failure> {
    let saved = TrainedModel::load(
        &find(&args.run)?,
        DevicePreference::Auto,
        Some(&device_check_path()),
    )?;
    let wording = GenerationOptions {
        tokens: args.tokens,
        temperature: args.temperature,
        top_k: args.top_k.map(|top_k| top_k as usize),
        seed: args.seed,
    };
    let written = saved.generate(&args.prompt, &wording)?;
    out!(
        "{}",
        with_plain_line_ends(&format!("{}{written}", args.prompt))
    );
    Ok(())
}

/// Replaces Windows line ends by line feeds; otherwise the terminal would show the carriage
/// returns.
fn with_plain_line_ends(text: &str) -> String {
    text.replace("\r\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_of_windows_are_not_printed() {
        assert_eq!(with_plain_line_ends("one\r\ntwo\n"), "one\ntwo\n");
    }
}
