//! Parses the command line.

use super::Ebb;
use clap::{CommandFactory, FromArgMatches};

impl Ebb {
    /// Parses the arguments of this process. Negative numbers are accepted as values, so that the
    /// error can name the allowed range instead of an unknown flag.
    pub fn parse_args() -> Self {
        let matches = with_negative_numbers(Ebb::command()).get_matches();
        Ebb::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_long() {
        Some(_) => arg.allow_negative_numbers(true),
        None => arg,
    });
    command.mut_subcommands(with_negative_numbers)
}
