//! Keeps the system from putting a training to sleep. Twin files with one surface.

#[cfg_attr(target_os = "macos", path = "activity/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "activity/other.rs")]
mod platform;

pub use platform::Activity;
