//! The system's own allocator, which returns large blocks by itself.

/// The allocator.
pub type Chosen = std::alloc::System;
/// The allocator's value.
pub const CHOSEN: Chosen = std::alloc::System;

/// Does nothing: there is nothing to set.
pub fn keep_freed() {}

/// Does nothing: no freed memory is held.
pub fn purge() {}
