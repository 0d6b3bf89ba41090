//! Declares the commands to the desktop shell, so that the capability file decides which of them the window may call.
//! Does nothing for a build without the window.

#[cfg(feature = "desktop")]
fn main() {
    println!("cargo::rerun-if-changed=src-tauri/capabilities");
    let attributes = tauri_build::Attributes::new()
        .capabilities_path_pattern("src-tauri/capabilities/*.json")
        .app_manifest(tauri_build::AppManifest::new().commands(COMMANDS));
    if let Err(error) = tauri_build::try_build(attributes) {
        println!("cargo::error={}", format!("{error:#}").replace('\n', " "));
    }
}

#[cfg(not(feature = "desktop"))]
fn main() {}

/// Every command of `commands.rs`.
#[cfg(feature = "desktop")]
const COMMANDS: &[&str] = &[
    "welcome",
    "machine",
    "runs",
    "choose_folder",
    "choose_weights",
    "begin_with",
    "open_sample",
    "inspection",
    "forecast",
    "train",
    "resume",
    "control",
    "drill",
    "pull",
    "report_error",
];
