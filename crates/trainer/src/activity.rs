//! Keeps the system awake while a training runs. One file per platform with the same surface.

#[cfg_attr(target_os = "macos", path = "activity/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "activity/other.rs")]
mod platform;

pub use platform::Activity;
