//! Other systems show a menu and return at once. Same surface as `macos.rs`.

use tauri::AppHandle;

/// Opens a menu with `popup`.
pub fn open(_app: &AppHandle, popup: impl Fn() -> tauri::Result<()>) -> tauri::Result<()> {
    popup()
}
