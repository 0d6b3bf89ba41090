//! On a Mac the shell's own default loads the page anew.

use tauri::WebviewWindow;

/// Nothing to choose here.
pub fn prepare() {}

/// Nothing to do here.
pub fn load_anew_when_killed(_window: &WebviewWindow) -> tauri::Result<()> {
    Ok(())
}
