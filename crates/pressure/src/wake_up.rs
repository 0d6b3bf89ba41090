//! Where the system tells of memory pressure by itself: a wake-up for the monitor, never a decision. It comes late or not at
//! all, so the beat goes on beside it. The files for each platform are twins with the same surface.

#[cfg_attr(target_os = "macos", path = "wake_up/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "wake_up/other.rs")]
mod platform;

pub(crate) use platform::WakeUp;
