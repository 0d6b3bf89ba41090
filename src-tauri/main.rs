//! Ebb: with a subcommand it works in the terminal, without one it opens the window. Refuses to know what training is.

mod allocator;
#[cfg(feature = "desktop")]
mod desktop;
mod headless;
mod sample;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: trainer::Counting<allocator::Chosen> = trainer::Counting(allocator::CHOSEN);

fn main() -> ExitCode {
    headless::run()
}
