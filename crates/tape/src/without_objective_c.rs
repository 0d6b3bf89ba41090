//! Systems without Objective-C, with the same surface as `objective_c.rs`.

use crate::error::{Result, TapeError};
use crate::fault_injection;

/// Runs `work`; there is no autorelease pool to drain, and no exception to catch but that of a
/// test.
///
/// # Errors
/// Those of `work`.
pub fn with_autorelease_pool<R, E: From<TapeError>>(
    work: impl FnOnce() -> std::result::Result<R, E>,
) -> std::result::Result<R, E> {
    fault_injection::catch_exception(work)
}

/// As [`with_autorelease_pool`], for work whose errors are not those of this crate.
pub fn catch_exception<R>(work: impl FnOnce() -> R) -> Result<R> {
    guarded(|| Ok(work()))
}

/// [`with_autorelease_pool`] with the error of this crate, which the compiler cannot infer from
/// `?`.
pub(crate) fn guarded<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    with_autorelease_pool(work)
}
