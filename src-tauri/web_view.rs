//! Reloads the page if its process ends, for example because the system killed it under memory
//! pressure. The training is not affected.

#[cfg_attr(target_os = "linux", path = "web_view/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "web_view/macos.rs")]
mod platform;

pub use platform::{load_anew_when_killed, missing_display, prepare};

/// Why a Mac has no display to open a window on.
#[cfg(any(target_os = "macos", test))]
pub const NO_SESSION: &str =
    "no user is logged in at this Mac's screen, for example because this is an SSH session";
