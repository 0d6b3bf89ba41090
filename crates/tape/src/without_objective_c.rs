//! Systems without Objective-C, with the same surface as `objective_c.rs`.

use crate::error::Result;

/// Runs `work`; there is no autorelease pool to drain.
pub fn with_autorelease_pool<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Runs `work`; there are no exceptions to catch.
pub(crate) fn guarded<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    work()
}
