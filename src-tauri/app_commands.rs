//! Commands about the app itself: recent folders, quitting, closing, the size of text, the menu
//! bar.

use crate::app_state::Shell;
use crate::commands::{Answer, status};
use crate::language::Language;
use crate::recent_folders::RecentView;
use crate::window_types::{CommandError, Show};
use std::sync::Arc;
use tauri::{AppHandle, State, WebviewWindow};

/// Smallest and largest size of text, as a share of the usual one.
const ZOOM: std::ops::RangeInclusive<f64> = 0.75..=2.0;

/// The folders that were opened last, newest first.
#[tauri::command]
pub async fn recent_folders(shell: State<'_, Arc<Shell>>) -> Answer<Vec<RecentView>> {
    status(shell, |shell| Ok(shell.recent.views())).await
}

/// Opens one of them.
#[tauri::command]
pub async fn open_recent(shell: State<'_, Arc<Shell>>, id: String) -> Answer<Show> {
    status(shell, move |shell| Ok(shell.open(&shell.recent.path(&id)?))).await
}

/// Removes one of them from the list, or all.
#[tauri::command]
pub async fn forget_recent(shell: State<'_, Arc<Shell>>, id: Option<String>) -> Answer<()> {
    status(shell, move |shell| {
        match id {
            Some(id) => shell.recent.remove(&id),
            None => shell.recent.clear(),
        }
        Ok(())
    })
    .await
}

/// Chooses the language of the window; `None` follows the system. Shows it in the menus; the page
/// loads itself again.
#[tauri::command]
pub fn set_language(app: AppHandle, choice: Option<Language>) -> Result<(), CommandError> {
    crate::language::choose(choice).map_err(|error| {
        let why =
            format!("The choice of the language could not be saved: {error}. Check the disk.");
        CommandError::new("failed", why)
    })?;
    crate::system_events::language_changed(&app).map_err(failed)
}

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
    crate::menu_actions::enable(&app, &enabled).map_err(failed)
}

fn failed(error: tauri::Error) -> CommandError {
    CommandError::new("failed", format!("The window does not answer: {error}."))
}
