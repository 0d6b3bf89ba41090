//! Brings the window back: it may be hidden, minimized, or behind others.

use tauri::{AppHandle, Manager};

/// Shows the window in front of the others.
pub fn show_window(app: &AppHandle) {
    if let Some(window) = app.get_webview_window("main") {
        // Each fails only if the window is closing.
        let _ = window.show();
        let _ = window.unminimize();
        let _ = window.set_focus();
    }
}
