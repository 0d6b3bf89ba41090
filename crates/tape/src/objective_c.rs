//! What every call into Objective-C needs, with the same surface as `without_objective_c.rs`.

use crate::error::{Result, TapeError};
use crate::fault_injection;
use std::panic::AssertUnwindSafe;

/// Runs `work` inside an autorelease pool, and returns an Objective-C exception, such as a failed
/// assertion of Metal, as [`TapeError::Exception`]. Without a pool, the objects of every command
/// buffer live until the thread ends; an exception that nothing catches ends the process.
///
/// The exception unwinds the Rust frames of `work`, whose values are dropped. `work` must not catch
/// panics around calls into Objective-C: Rust cannot catch foreign exceptions, and would abort. A
/// panic of `work` passes through.
///
/// # Errors
/// Those of `work`, or the system raised an exception.
pub fn with_autorelease_pool<R, E: From<TapeError>>(
    work: impl FnOnce() -> std::result::Result<R, E>,
) -> std::result::Result<R, E> {
    fault_injection::catch_exception(|| {
        objc2::rc::autoreleasepool(|_| {
            objc2::exception::catch(AssertUnwindSafe(work)).unwrap_or_else(|exception| {
                let reason = exception.map(|exception| exception.to_string());
                let reason = reason.unwrap_or_else(|| "no reason given".to_owned());
                Err(TapeError::Exception(reason).into())
            })
        })
    })
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
