//! The system's own allocator, which returns large blocks by itself.

/// The allocator.
pub type Chosen = std::alloc::System;
/// The allocator's value.
pub const CHOSEN: Chosen = std::alloc::System;

/// Nothing to be set.
pub fn keep_freed() {}

/// Nothing is cached that could be given back.
pub fn purge() {}
