//! The page's own process may be killed, by the system under memory pressure for instance. It is
//! then loaded anew; the training never notices.

#[cfg_attr(target_os = "linux", path = "page/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "page/macos.rs")]
mod platform;

pub use platform::{load_anew_when_killed, missing_display, prepare};
