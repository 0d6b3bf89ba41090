//! Passwords that the system stores encrypted for the user.

#[cfg_attr(target_os = "macos", path = "keychain/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "keychain/other.rs")]
mod platform;

pub use platform::internet_password;
