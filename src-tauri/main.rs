//! Ebb: with a subcommand it works in the terminal, without one it opens the window. Refuses to know what training is.

mod allocator;
mod drill;
mod headless;
mod hub;
mod learnt;

#[cfg(feature = "desktop")]
mod active;
#[cfg(feature = "desktop")]
mod commands;
#[cfg(feature = "desktop")]
mod desktop;
#[cfg(feature = "desktop")]
mod held;
#[cfg(feature = "desktop")]
mod inspections;
#[cfg(feature = "desktop")]
mod page;
#[cfg(feature = "desktop")]
mod readings;
#[cfg(feature = "desktop")]
mod refusal;
#[cfg(feature = "desktop")]
mod row;
#[cfg(feature = "desktop")]
mod runs;
#[cfg(feature = "desktop")]
mod sample;
#[cfg(feature = "desktop")]
mod shown;
#[cfg(feature = "desktop")]
mod suggestion;
#[cfg(feature = "desktop")]
mod view;
#[cfg(feature = "desktop")]
mod weights;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: trainer::Counting<allocator::Chosen> = trainer::Counting(allocator::CHOSEN);

fn main() -> ExitCode {
    allocator::keep_freed();
    headless::run()
}
