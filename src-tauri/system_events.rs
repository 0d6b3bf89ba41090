//! Handles what the system sends to the app itself and not to its window: requests to quit, opened
//! folders, and actions of the menu bar.

#[cfg_attr(target_os = "macos", path = "system_events/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "system_events/other.rs")]
mod platform;

pub use platform::{install, language_changed, on_event, with_menu};
