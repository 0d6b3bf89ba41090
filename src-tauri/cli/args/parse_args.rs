//! Parses the command line.

use super::Ebb;
use super::former_names::former_names;
use super::unknown_flags::with_sensible_tip;
use crate::cli::output::status;
use clap::{CommandFactory, FromArgMatches};

impl Ebb {
    /// Parses the arguments of this process. Accepts negative numbers as values, so that the error
    /// for a value such as -1 names the allowed range instead of an unknown flag. Prints a message
    /// for each former name of a command or flag.
    pub fn parse_args() -> Self {
        let matches = with_negative_numbers(Ebb::command()).try_get_matches();
        let matches = matches.unwrap_or_else(|error| with_sensible_tip(error).exit());
        let ebb = Ebb::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let arguments = std::env::args_os().skip(1);
        let arguments: Vec<String> = arguments
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        for sentence in former_names(&Ebb::command(), &arguments) {
            status!("{sentence}");
        }
        ebb
    }
}

fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_long() {
        Some(_) => arg.allow_negative_numbers(true),
        None => arg,
    });
    command.mut_subcommands(with_negative_numbers)
}
