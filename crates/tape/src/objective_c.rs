//! What every call into Objective-C needs, with the same surface as `without_objective_c.rs`.

use crate::error::Result;
use std::panic::AssertUnwindSafe;

/// Runs `work` inside an autorelease pool. Without one, the objects of every command buffer live
/// until the thread ends.
pub fn with_autorelease_pool<R>(work: impl FnOnce() -> R) -> R {
    objc2::rc::autoreleasepool(|_| work())
}

/// Runs `work` inside an autorelease pool and returns an Objective-C exception as an error.
pub fn catch_exception<R>(work: impl FnOnce() -> R) -> Result<R> {
    guarded(|| Ok(work()))
}

/// Runs `work` inside an autorelease pool and returns an Objective-C exception, such as a failed
/// assertion of Metal, as an error. It would otherwise abort the process.
pub(crate) fn guarded<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    with_autorelease_pool(|| {
        objc2::exception::catch(AssertUnwindSafe(work)).unwrap_or_else(|exception| {
            let reason = exception.map_or_else(|| "no reason given".to_owned(), |e| e.to_string());
            Err(candle_core::Error::Msg(format!("the system raised an exception: {reason}")).into())
        })
    })
}
