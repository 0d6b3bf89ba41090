//! Lets the threads of a background check give way to other work. One file per platform with the
//! same surface.

#[cfg_attr(target_os = "macos", path = "low_priority_threads/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "low_priority_threads/other.rs")]
mod platform;

use crate::error::{Result, TrainError};
use crate::threads::STACK_BYTES;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tape::device::default_threads;

/// Runs `work` in a new pool of threads with a low priority and blocks until it returns. The system
/// may sleep meanwhile.
///
/// # Errors
/// The error of `work`; the pool cannot be started; `work` panicked.
pub(super) fn at_low_priority<R: Send>(work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(default_threads())
        .stack_size(STACK_BYTES)
        .thread_name(|n| format!("device-check-{n}"))
        .start_handler(|_| platform::lower_priority())
        .build()
        .map_err(|error| TrainError::NoThreads(error.to_string()))?;
    catch_unwind(AssertUnwindSafe(|| pool.install(work)))
        .unwrap_or_else(|panic| Err(TrainError::from_panic(&*panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_at_low_priority_returns_its_result_or_its_panic() {
        assert_eq!(at_low_priority(|| Ok(7)).unwrap(), 7);
        let panicked = at_low_priority(|| -> Result<()> { panic!("deliberately") });
        let error = panicked.unwrap_err().to_string();
        assert!(error.contains("deliberately"), "{error}");
    }
}
