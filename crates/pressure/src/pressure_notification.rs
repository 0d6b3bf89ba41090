//! The system's own notification of memory pressure: it wakes the monitor and decides nothing. It
//! may be late or missing, so the monitor polls as well. Each platform has a file with the same
//! interface.

#[cfg_attr(target_os = "macos", path = "pressure_notification/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "pressure_notification/other.rs")]
mod platform;

pub(crate) use platform::PressureNotification;
