//! The system's own allocator. It returns large blocks by itself.

pub type Chosen = std::alloc::System;
pub const CHOSEN: Chosen = std::alloc::System;

/// Does nothing: there is no option to set.
pub fn keep_freed() {}

/// Does nothing: the allocator holds no freed memory.
pub fn purge() {}
