//! Declares the window's commands to the desktop shell, so that the capability file decides which
//! of them the window may call. Also stores the commit and the features of the build in the
//! program.

use std::process::Command;

fn main() {
    report_build();
    declare_commands();
}

/// Sets `EBB_COMMIT`, the short hash of the commit (`unknown` outside a git checkout), and
/// `EBB_FEATURES`.
fn report_build() {
    println!("cargo::rerun-if-changed=.git/HEAD");
    println!("cargo::rerun-if-changed=.git/logs/HEAD");
    let output = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let hash = output.ok().filter(|output| output.status.success());
    let hash = hash.and_then(|output| String::from_utf8(output.stdout).ok());
    let hash = hash.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=EBB_COMMIT={}", hash.trim());
    let features = ["desktop", "cuda"].into_iter();
    let is_on = |feature: &&str| {
        std::env::var_os(format!("CARGO_FEATURE_{}", feature.to_uppercase())).is_some()
    };
    let features: Vec<&str> = features.filter(is_on).collect();
    println!("cargo::rustc-env=EBB_FEATURES={}", features.join(" "));
}

#[cfg(feature = "desktop")]
fn declare_commands() {
    println!("cargo::rerun-if-changed=src-tauri/capabilities");
    let attributes = tauri_build::Attributes::new()
        .capabilities_path_pattern("src-tauri/capabilities/*.json")
        .app_manifest(tauri_build::AppManifest::new().commands(COMMANDS));
    if let Err(error) = tauri_build::try_build(attributes) {
        println!("cargo::error={}", format!("{error:#}").replace('\n', " "));
    }
}

#[cfg(not(feature = "desktop"))]
fn declare_commands() {}

/// Every command of `command_handler.rs`.
#[cfg(feature = "desktop")]
const COMMANDS: &[&str] = &[
    "welcome",
    "machine",
    "runs",
    "run_list",
    "choose_folder",
    "choose_weights",
    "begin_with",
    "base_models",
    "choose_gguf",
    "look_up_model",
    "download_model",
    "looked_up_model",
    "stop_model",
    "open_sample",
    "inspection",
    "estimate",
    "train",
    "enqueue",
    "enqueue_resume",
    "queue",
    "change_queue",
    "start_queue",
    "resume",
    "control",
    "stop_device_check",
    "stop_reading",
    "memory_limits",
    "drill",
    "pull",
    "data",
    "data_samples",
    "first_samples",
    "conversations",
    "data_thumbnail",
    "reveal_file",
    "choose_data",
    "data_duplicates",
    "draw_samples",
    "drawn_sample",
    "results",
    "evaluate_run",
    "leave_results",
    "result_samples",
    "result_thumbnail",
    "reveal_sample",
    "save_chart",
    "locate_data",
    "export_choices",
    "export_run",
    "try_choose",
    "try_picture",
    "try_text",
    "try_files",
    "try_answers",
    "try_thumbnail",
    "try_saliency",
    "try_save",
    "open_input",
    "compare_results",
    "evaluate_input",
    "chat_begin",
    "chat_answer",
    "chat_stop",
    "ask_questions",
    "questions",
    "stop_questions",
    "setting_values",
    "changed_settings",
    "check_settings",
    "set_data_setting",
    "report_error",
    "epoch_seconds",
    "context_menu",
    "run_location",
    "edit_run",
    "import_run",
    "repeat_run",
    "missing_data",
    "recovery_options",
    "reveal",
    "trash_run",
    "enable_actions",
    "recent_folders",
    "open_recent",
    "forget_recent",
    "set_language",
    "quit",
    "close_window",
    "zoom",
];
