//! On a Mac the toolkit reloads the page by itself.

use tauri::WebviewWindow;

/// Always true: the system reports an error if no window can be opened.
pub fn has_display() -> bool {
    true
}

/// Does nothing.
pub fn prepare() {}

/// Does nothing.
pub fn load_anew_when_killed(_window: &WebviewWindow) -> tauri::Result<()> {
    Ok(())
}
