//! The window: builds it, hands dropped folders to the inspections, and asks before a training is cut short.
//! Refuses to know how anything is read, trained or drawn.

use std::process::ExitCode;

/// Opens the window and returns when it is closed.
pub fn run() -> ExitCode {
    let started = tauri::Builder::default()
        .plugin(tauri_plugin_dialog::init())
        .run(tauri::generate_context!());
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ebb: the window cannot be opened: {error}. Train in the terminal instead: ebb train FOLDER");
            ExitCode::FAILURE
        }
    }
}
