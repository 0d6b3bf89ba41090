//! Shows a context menu at the pointer.

#[cfg_attr(target_os = "macos", path = "context_menu/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "context_menu/other.rs")]
mod platform;

pub use platform::show;
