//! Ebb in the terminal: every test drives the built binary in a place of its own, one story a file.
//! Refuses to know how Ebb does it.

mod bad_input;
mod bench;
mod stop_by_itself;
mod export;
mod fine_tuning;
mod recovery_steps;
mod activation_checkpointing;
mod token_compression;
mod stress_test;
mod files;
mod refusals;
mod controller_jsonl;
mod controller_state;
mod memory_group;
mod hub_download;
mod checkpoints;
mod crash_report;
mod process_limits;
mod regression_targets;
mod suspend;
mod loader_pipeline;
mod plan;
mod presets;
mod real_pressure;
mod reproducibility;
mod stop_and_resume;
mod event_stream;
mod memory_target;
mod inspect_texts;
mod train_texts;
mod search_commands;
mod predict_and_evaluate;
mod verify_split;
mod pressure_invariance;

#[path = "../support/terminal.rs"]
mod support;
