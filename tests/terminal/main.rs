//! Ebb in the terminal: every test runs the built binary with its own home folder. One feature per
//! file.

mod activation_checkpointing;
mod bad_input;
mod bundle_signing;
mod bench;
mod branch;
mod chat;
mod checkpoints;
mod controller_command;
mod controller_state;
mod conversations;
mod crash_report;
mod doctor;
mod edge_cases;
mod evaluation_samples;
mod event_stream;
mod export;
mod fine_tuning;
mod hub_download;
mod image_baseline;
mod image_defaults;
mod inspect_images;
mod inspect_texts;
#[cfg(target_os = "linux")]
mod killed_ranks;
mod loader_pipeline;
mod mac_report;
mod memory_cgroup;
mod memory_target;
mod old_names;
mod old_runs;
mod on_hosts;
#[cfg(target_os = "linux")]
mod open_ports;
mod plan;
mod preferences;
mod predict_and_evaluate;
mod presets;
mod prompts;
mod pressure_invariance;
mod process_limits;
mod questions;
mod random_kills;
mod real_pressure;
mod recovery_steps;
mod regression_targets;
mod reproducibility;
mod run_archive;
mod run_notes;
mod run_tags;
mod search_commands;
mod serve;
mod several_machines;
mod stop_and_resume;
mod stop_for_shortage;
mod stress_test;
mod suspend_under_memory_pressure;
mod text_baseline;
mod token_compression;
mod train_longer;
mod train_texts;
mod unreadable_files;
mod verify_split;

#[cfg(target_os = "linux")]
#[path = "../support/open_ports.rs"]
mod port_table;
#[path = "../support/python.rs"]
mod python;
#[path = "../support/terminal.rs"]
mod support;
#[path = "../support/text_datasets.rs"]
mod text_datasets;
