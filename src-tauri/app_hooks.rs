//! What the system asks of the app beyond its window: quitting, opened folders, the menu.

#[cfg_attr(target_os = "macos", path = "app_hooks/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "app_hooks/other.rs")]
mod platform;

pub use platform::{install, on_event, with_menu};
