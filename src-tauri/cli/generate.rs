//! `ebb generate`: continues a text with the language model of a run's best checkpoint.

use super::args;
use super::failure::Failure;
use super::output::{out, write_part};
use super::train::find;
use crate::paths::device_check_path;
use std::ops::ControlFlow;
use trainer::{DevicePreference, TrainedModel};

/// Runs `ebb generate`, which prints the text while it is generated. The same prompt, options and
/// seed give the same text.
pub fn run(args: &args::Generate) -> Result<(), Failure> {
    let saved = TrainedModel::load(
        &find(&args.run)?,
        DevicePreference::Auto,
        Some(&device_check_path()),
    )?;
    let options = args.sampling.options(args.tokens);
    let mut prompt = Some(args.prompt.as_str());
    let print = |text: &str| {
        // A model of another kind is refused before anything is printed.
        let text = prompt.take().unwrap_or_default().to_owned() + text;
        if write_part(&without_carriage_returns(&text)) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    saved.generate(&args.prompt, &options, print)?;
    out!("");
    Ok(())
}

/// Line ends of Windows become line feeds; otherwise the terminal would show the carriage returns.
pub(super) fn without_carriage_returns(text: &str) -> String {
    text.replace('\r', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_of_windows_are_not_printed() {
        assert_eq!(without_carriage_returns("one\r\ntwo\n"), "one\ntwo\n");
    }
}
