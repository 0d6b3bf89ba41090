//! The heap. Twin files with one surface: which allocator, and how it gives cached memory back.

#[cfg_attr(target_os = "linux", path = "allocator/mimalloc.rs")]
#[cfg_attr(not(target_os = "linux"), path = "allocator/system.rs")]
mod platform;

pub use platform::{CHOSEN, Chosen, purge};
