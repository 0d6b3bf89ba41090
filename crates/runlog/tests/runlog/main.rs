//! Settings, events, charts, reports and archives of runs. One topic per file.

#[path = "../support/mod.rs"]
mod support;

mod config;
mod event_file;
mod fold_events;
mod live_view;
mod machine_memory;
mod old_versions;
mod recorded_chart_data;
mod recorded_demo_run;
mod report;
mod run_archive;
mod run_index;
mod settings_page;
mod status_line_and_changes;
mod typed_settings;
mod current_typescript_bindings;
