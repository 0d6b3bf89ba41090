//! Shows a context menu at the pointer, or beside what has the focus.

#[cfg_attr(target_os = "macos", path = "context_menu/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "context_menu/other.rs")]
mod platform;

use tauri::menu::Menu;
use tauri::{LogicalPosition, Manager, WebviewWindow, Wry};

/// Shows the menu at a place of the window, or at the pointer.
pub fn show(
    window: WebviewWindow,
    menu: Menu<Wry>,
    at: Option<LogicalPosition<f64>>,
) -> tauri::Result<()> {
    let app = window.app_handle().clone();
    platform::open(&app, move || match at {
        Some(at) => window.popup_menu_at(&menu, at),
        None => window.popup_menu(&menu),
    })
}
