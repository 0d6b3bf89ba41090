//! Ebb: a subcommand runs in the terminal; without one the window opens.

mod allocator;
mod stress_test;
mod cli;
mod compare_estimate;
mod hub_download;
mod estimate_history;
mod example_parts;
mod judge_run;
mod machine_info;
mod move_to_trash;
mod paths;
mod prediction_rows;
mod question_scores;
mod run_names;
mod signals;
mod starting_point;
mod task_labels;

#[cfg(feature = "desktop")]
mod menu_actions;
#[cfg(feature = "desktop")]
mod current_training;
#[cfg(feature = "desktop")]
mod app_commands;
#[cfg(feature = "desktop")]
mod system_events;
#[cfg(feature = "desktop")]
mod close_window;
#[cfg(all(feature = "desktop", any(target_os = "macos", test)))]
mod command_line_tool;
#[cfg(feature = "desktop")]
mod commands;
#[cfg(feature = "desktop")]
mod context_menu;
#[cfg(feature = "desktop")]
mod app_window;
#[cfg(feature = "desktop")]
mod data_choices;
#[cfg(feature = "desktop")]
mod data_commands;
#[cfg(feature = "desktop")]
mod data_page;
#[cfg(feature = "desktop")]
mod duplicate_search;
#[cfg(feature = "desktop")]
mod duplicates_view;
#[cfg(feature = "desktop")]
mod augmented_samples_view;
#[cfg(feature = "desktop")]
mod first_samples;
#[cfg(feature = "desktop")]
mod conversations_view;
#[cfg(feature = "desktop")]
mod first_device_check;
#[cfg(feature = "desktop")]
mod command_handler;
#[cfg(feature = "desktop")]
mod desktop_status;
#[cfg(feature = "desktop")]
mod earlier_speed;
#[cfg(feature = "desktop")]
mod early_messages;
#[cfg(feature = "desktop")]
mod language;
#[cfg(feature = "desktop")]
mod lock_mutex;
#[cfg(feature = "desktop")]
mod inference_thread;
#[cfg(feature = "desktop")]
mod opened_dataset_folders;
#[cfg(feature = "desktop")]
mod menu_bar_item;
#[cfg(feature = "desktop")]
mod web_view;
#[cfg(feature = "desktop")]
mod queue_commands;
#[cfg(feature = "desktop")]
mod quit;
#[cfg(feature = "desktop")]
mod machine_readings;
#[cfg(feature = "desktop")]
mod export_run;
#[cfg(feature = "desktop")]
mod import_run;
#[cfg(feature = "desktop")]
mod command_error;
#[cfg(feature = "desktop")]
mod recovery_view;
#[cfg(feature = "desktop")]
mod results;
#[cfg(feature = "desktop")]
mod comparison_view;
#[cfg(feature = "desktop")]
mod results_commands;
#[cfg(feature = "desktop")]
mod run_chat;
#[cfg(feature = "desktop")]
mod chat_commands;
#[cfg(feature = "desktop")]
mod base_models;
#[cfg(feature = "desktop")]
mod base_model_commands;
#[cfg(feature = "desktop")]
mod results_headline;
#[cfg(feature = "desktop")]
mod results_view;
#[cfg(feature = "desktop")]
mod run_commands;
#[cfg(feature = "desktop")]
mod save_chart;
#[cfg(feature = "desktop")]
mod plan_setting_commands;
#[cfg(feature = "desktop")]
mod setting_location;
#[cfg(all(feature = "desktop", test))]
mod setting_table;
#[cfg(feature = "desktop")]
mod recent_folders;
#[cfg(feature = "desktop")]
mod recent_menu;
#[cfg(feature = "desktop")]
mod run_row;
#[cfg(feature = "desktop")]
mod run_registry;
#[cfg(feature = "desktop")]
mod bundled_sample;
#[cfg(feature = "desktop")]
mod app_state;
#[cfg(feature = "desktop")]
mod show_window;
#[cfg(feature = "desktop")]
mod single_instance;
#[cfg(feature = "desktop")]
mod stay_on_page;
#[cfg(feature = "desktop")]
mod os_integration;
#[cfg(feature = "desktop")]
mod training_summary;
#[cfg(feature = "desktop")]
mod training_queue;
#[cfg(feature = "desktop")]
mod inspection_view;
#[cfg(feature = "desktop")]
mod plan_page;
#[cfg(feature = "desktop")]
mod try_it;
#[cfg(feature = "desktop")]
mod window_types;
#[cfg(feature = "desktop")]
mod opened_weight_folders;
#[cfg(feature = "desktop")]
mod shown_versions;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: trainer::CountingAllocator<allocator::Chosen> =
    trainer::CountingAllocator(allocator::CHOSEN);

/// Sets what candle and NCCL read from the environment, unless the user has set it.
fn configure_libraries() {
    for (name, value) in trainer::CANDLE_ENVIRONMENT
        .into_iter()
        .chain(trainer::RunGroup::NCCL_ENVIRONMENT)
    {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread exists yet that could read the environment.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

fn main() -> ExitCode {
    allocator::keep_freed();
    configure_libraries();
    cli::run()
}
