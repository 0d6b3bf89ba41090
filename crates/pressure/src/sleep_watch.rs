//! The system's announcement that the machine is about to sleep, so that a checkpoint can be
//! written before. Each platform has a file with the same interface.

#[cfg_attr(target_os = "macos", path = "sleep_watch/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "sleep_watch/other.rs")]
mod platform;

pub use platform::SleepWatch;
