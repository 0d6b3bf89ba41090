//! `ebb completions` and `ebb man`: files for packagers, generated from the declared command line.

use super::args::{Completions, Ebb};
use super::failure::Failure;
use clap::CommandFactory;
use std::io::{Error, Write};

/// Runs `ebb completions`.
pub fn completions(args: &Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Ebb::command(), "ebb", &mut text);
    print(&text)
}

/// Runs `ebb man`.
pub fn man() -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Ebb::command())
        .render(&mut text)
        .map_err(lost)?;
    print(&text)
}

fn print(text: &[u8]) -> Result<(), Failure> {
    std::io::stdout().write_all(text).map_err(lost)
}

fn lost(error: Error) -> Failure {
    let problem = runlog::format_io_error(&error);
    Failure::new(format!("the output could not be written: {problem}"))
}
