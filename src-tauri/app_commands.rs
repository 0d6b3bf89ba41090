//! Commands about the app itself: quitting, closing, the size of text, the menu bar.

use crate::window_types::CommandError;
use tauri::{AppHandle, WebviewWindow};

/// Smallest and largest size of text, as a share of the usual one.
const ZOOM: std::ops::RangeInclusive<f64> = 0.75..=2.0;

/// Quits, after a question if a training runs.
#[tauri::command]
pub fn quit(app: AppHandle) {
    crate::quit::quit(&app);
}

/// Closes the window as its close button does.
#[tauri::command]
pub fn close_window(window: WebviewWindow) -> Result<(), CommandError> {
    window.close().map_err(failed)
}

/// Scales everything in the window.
#[tauri::command]
pub fn zoom(window: WebviewWindow, factor: f64) -> Result<(), CommandError> {
    let factor = factor.clamp(*ZOOM.start(), *ZOOM.end());
    window.set_zoom(factor).map_err(failed)
}

/// Enables the items of the menu bar whose actions the page can perform now.
#[tauri::command]
pub fn enable_actions(app: AppHandle, enabled: Vec<String>) -> Result<(), CommandError> {
    crate::actions::enable(&app, &enabled).map_err(failed)
}

fn failed(error: tauri::Error) -> CommandError {
    CommandError::new("failed", format!("The window does not answer: {error}."))
}
