//! On a Mac the shell's own default loads the page anew.

use tauri::WebviewWindow;

/// The system says by itself where no window can be opened.
pub fn has_display() -> bool {
    true
}

/// Nothing to choose here.
pub fn prepare() {}

/// Nothing to do here.
pub fn load_anew_when_killed(_window: &WebviewWindow) -> tauri::Result<()> {
    Ok(())
}
