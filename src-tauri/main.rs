//! Ebb: a subcommand runs in the terminal; without one the window opens.

mod allocator;
mod stress_test;
mod cli;
mod hub_download;
mod paths;
mod predictions;
mod task_labels;

#[cfg(feature = "desktop")]
mod actions;
#[cfg(feature = "desktop")]
mod current_training;
#[cfg(feature = "desktop")]
mod app_commands;
#[cfg(feature = "desktop")]
mod app_hooks;
#[cfg(feature = "desktop")]
mod closing;
#[cfg(all(feature = "desktop", any(target_os = "macos", test)))]
mod command_line_tool;
#[cfg(feature = "desktop")]
mod commands;
#[cfg(feature = "desktop")]
mod app_window;
#[cfg(feature = "desktop")]
mod data_choices;
#[cfg(feature = "desktop")]
mod data_commands;
#[cfg(feature = "desktop")]
mod data_view;
#[cfg(feature = "desktop")]
mod duplicate_search;
#[cfg(feature = "desktop")]
mod duplicates_view;
#[cfg(feature = "desktop")]
mod drawn_view;
#[cfg(feature = "desktop")]
mod handler;
mod desktop_status;
#[cfg(feature = "desktop")]
mod lock;
#[cfg(feature = "desktop")]
mod inspections;
#[cfg(feature = "desktop")]
mod menu_bar_item;
#[cfg(feature = "desktop")]
mod page;
#[cfg(feature = "desktop")]
mod quit;
#[cfg(feature = "desktop")]
mod machine_readings;
#[cfg(feature = "desktop")]
mod exports;
#[cfg(feature = "desktop")]
mod command_error;
#[cfg(feature = "desktop")]
mod results;
#[cfg(feature = "desktop")]
mod results_commands;
#[cfg(feature = "desktop")]
mod results_view;
mod run_commands;
#[cfg(feature = "desktop")]
mod run_row;
#[cfg(feature = "desktop")]
mod runs;
#[cfg(feature = "desktop")]
mod bundled_sample;
#[cfg(feature = "desktop")]
mod app_state;
#[cfg(feature = "desktop")]
mod show_window;
#[cfg(feature = "desktop")]
mod single_instance;
#[cfg(feature = "desktop")]
mod desktop_calls;
#[cfg(feature = "desktop")]
mod training_summary;
#[cfg(feature = "desktop")]
mod inspection_view;
#[cfg(feature = "desktop")]
mod plan_view;
#[cfg(feature = "desktop")]
mod try_it;
#[cfg(feature = "desktop")]
mod window_types;
#[cfg(feature = "desktop")]
mod weight_folders;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: trainer::CountingAllocator<allocator::Chosen> =
    trainer::CountingAllocator(allocator::CHOSEN);

/// Sets what candle reads from the environment, unless the user has set it.
fn configure_candle() {
    for (name, value) in trainer::CANDLE_ENVIRONMENT {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread exists yet that could read the environment.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

fn main() -> ExitCode {
    allocator::keep_freed();
    configure_candle();
    cli::run()
}
