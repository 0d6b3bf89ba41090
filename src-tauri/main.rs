//! Ebb: with a subcommand it works in the terminal, without one it opens the window. Refuses to know what training is.

#[cfg(feature = "desktop")]
mod desktop;
#[cfg(feature = "desktop")]
mod view;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "desktop")]
    return desktop::run();
    #[cfg(not(feature = "desktop"))]
    ExitCode::SUCCESS
}
