//! Other systems ask nothing beyond the window's own events. Same surface as `macos.rs`.

use tauri::{AppHandle, Builder, RunEvent, Wry};

/// Adds nothing.
pub fn with_menu(builder: Builder<Wry>) -> Builder<Wry> {
    builder
}

/// Installs nothing.
pub fn install(_app: &AppHandle) {}

/// Changes nothing: there is no menu bar.
pub fn language_changed(_app: &AppHandle) -> tauri::Result<()> {
    Ok(())
}

/// Handles nothing.
pub fn on_event(_app: &AppHandle, _event: &RunEvent) {}
