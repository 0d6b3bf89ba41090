//! Other systems show a menu and return at once. Same surface as `macos.rs`.

use tauri::menu::Menu;
use tauri::{WebviewWindow, Wry};

/// Shows the menu.
pub fn show(window: WebviewWindow, menu: Menu<Wry>) -> tauri::Result<()> {
    window.popup_menu(&menu)
}
