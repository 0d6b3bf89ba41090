//! Calls to the desktop: notifications, the file manager, the trash, and whether there is a tray.

#[cfg_attr(target_os = "macos", path = "desktop_calls/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "desktop_calls/linux.rs")]
mod platform;

pub use platform::{CLOSING_HIDES, FILE_MANAGER, has_tray, move_to_trash, notify, reveal};
