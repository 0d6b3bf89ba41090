//! Calls to the desktop: notifications, alerts, the file manager, and whether there is a tray.

#[cfg_attr(target_os = "macos", path = "os_integration/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "os_integration/linux.rs")]
mod platform;

pub use platform::{
    CLOSING_HIDES, FILE_MANAGER, FULLSCREEN_HAS_SPACE, has_tray, notify, reveal, show_alert,
    unhide_app,
};
