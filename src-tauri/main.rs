//! Ebb: with a subcommand it works in the terminal, without one it opens the window. Refuses to
//! know what training is.

mod allocator;
mod stress_test;
mod cli;
mod hub;
mod task_labels;

#[cfg(feature = "desktop")]
mod active;
#[cfg(feature = "desktop")]
mod app_hooks;
#[cfg(all(feature = "desktop", any(target_os = "macos", test)))]
mod command_line_tool;
#[cfg(feature = "desktop")]
mod commands;
#[cfg(feature = "desktop")]
mod desktop;
#[cfg(feature = "desktop")]
mod lock;
#[cfg(feature = "desktop")]
mod inspections;
#[cfg(feature = "desktop")]
mod page;
#[cfg(feature = "desktop")]
mod quit;
#[cfg(feature = "desktop")]
mod machine_readings;
#[cfg(feature = "desktop")]
mod refusal;
#[cfg(feature = "desktop")]
mod run_row;
#[cfg(feature = "desktop")]
mod runs;
#[cfg(feature = "desktop")]
mod sample;
#[cfg(feature = "desktop")]
mod shell;
#[cfg(feature = "desktop")]
mod inspection_view;
#[cfg(feature = "desktop")]
mod plan_view;
#[cfg(feature = "desktop")]
mod view;
#[cfg(feature = "desktop")]
mod weights;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: trainer::Counting<allocator::Chosen> = trainer::Counting(allocator::CHOSEN);

fn main() -> ExitCode {
    allocator::keep_freed();
    cli::run()
}
