//! Ebb in the terminal: every test runs the built binary with its own home folder. One feature per
//! file.

mod activation_checkpointing;
mod bad_input;
mod bench;
mod checkpoints;
mod controller_command;
mod controller_state;
mod crash_report;
mod edge_cases;
mod event_stream;
mod export;
mod fine_tuning;
mod hub_download;
mod inspect_texts;
mod loader_pipeline;
mod memory_cgroup;
mod memory_target;
mod old_names;
mod plan;
mod predict_and_evaluate;
mod presets;
mod pressure_invariance;
mod process_limits;
mod real_pressure;
mod recovery_steps;
mod regression_targets;
mod reproducibility;
mod search_commands;
mod stop_and_resume;
mod stop_by_itself;
mod stress_test;
mod suspend;
mod token_compression;
mod train_texts;
mod unreadable_files;
mod verify_split;

#[path = "../support/terminal.rs"]
mod support;
