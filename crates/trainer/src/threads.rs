//! The thread pool of one training. Deep networks recurse, so every thread has a large stack.

use crate::error::{Result, TrainError};
use crate::keep_awake::Awake;
use std::sync::Mutex;
use std::sync::mpsc::channel;

/// Stack of a thread that computes with a network, in bytes: deep networks recurse. The threads of
/// tokio have smaller stacks, so this work has threads of its own.
pub const STACK_BYTES: usize = 64 << 20;

/// Address space in bytes mapped for the stacks of a run: those of its pool and that of the
/// calling thread. Almost none of it is ever touched.
pub(crate) fn stack_bytes(threads: u32) -> u64 {
    (u64::from(threads) + 1) * STACK_BYTES as u64
}

/// Runs `work` on the first thread of a new pool of `threads` threads and blocks until it returns.
///
/// The threads start one after the other, and `work` always runs on the first one. An allocator
/// with per-thread arenas then lays out the same work in the same way each time.
///
/// # Errors
/// The error of `work`; the pool cannot be started; `work` panicked.
pub fn on_threads<R: Send>(threads: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .stack_size(STACK_BYTES)
        .thread_name(|n| format!("training-{n}"))
        .spawn_handler(spawn)
        .build()
        .map_err(|error| TrainError::NoThreads(error.to_string()))?;
    let work = Mutex::new(Some(work));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let outcomes = pool.broadcast(|thread| {
            let first = thread.index() == 0;
            let work = first.then(|| work.lock().ok()?.take()).flatten()?;
            let _awake = Awake::begin();
            Some(work())
        });
        let not_started = || Err(TrainError::NoThreads("the first one did not start".into()));
        outcomes
            .into_iter()
            .flatten()
            .next()
            .unwrap_or_else(not_started)
    }));
    outcome.unwrap_or_else(|panic| Err(TrainError::from_panic(&*panic)))
}

/// Spawns one thread of a pool and waits until it runs.
fn spawn(thread: rayon::ThreadBuilder) -> std::io::Result<()> {
    let mut builder = std::thread::Builder::new();
    if let Some(name) = thread.name() {
        builder = builder.name(name.to_owned());
    }
    if let Some(bytes) = thread.stack_size() {
        builder = builder.stack_size(bytes);
    }
    let (started, wait) = channel();
    builder.spawn(move || {
        // The receiver was dropped if the pool could not be built.
        let _ = started.send(());
        thread.run();
    })?;
    // A receive error means that the thread ended before it ran anything.
    let _ = wait.recv();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_always_runs_on_the_first_thread() {
        for _ in 0..50 {
            let thread = on_threads(4, || Ok(rayon::current_thread_index()));
            assert_eq!(thread.expect("it runs"), Some(0));
        }
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let panicked = on_threads(2, || -> Result<()> { panic!("deliberately") });
        let error = panicked.expect_err("it panicked").to_string();
        assert!(error.contains("deliberately"), "{error}");
    }
}
