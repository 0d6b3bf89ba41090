//! On a Mac the shell's own default loads the page again. Same surface as `linux.rs`.

use objc2_core_graphics::CGSessionCopyCurrentDictionary;
use tauri::WebviewWindow;

/// Why there is no display to open a window on, if there is none: a session over SSH has no window
/// server unless the user is logged in at the screen.
pub fn missing_display() -> Option<&'static str> {
    let missing = CGSessionCopyCurrentDictionary().is_none();
    missing.then_some("no user is logged in at this Mac's screen, as in a session over SSH")
}

/// Nothing to choose here.
pub fn prepare() {}

/// Nothing to do here.
pub fn load_anew_when_killed(_window: &WebviewWindow) -> tauri::Result<()> {
    Ok(())
}
