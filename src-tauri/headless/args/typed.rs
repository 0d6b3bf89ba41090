//! From what was typed to the declared arguments.

use super::Ebb;
use clap::{CommandFactory, FromArgMatches};

impl Ebb {
    /// What was typed. A number may be negative: then what is allowed is said, where the parser would take it for a flag.
    pub fn typed() -> Self {
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
