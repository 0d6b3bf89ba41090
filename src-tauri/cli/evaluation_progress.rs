//! The progress bar of an evaluation.

use super::progress::{evaluating, terminal_bar};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use trainer::Progress;

/// Interval between two updates of the progress bar.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// Runs `work` and returns its result. On a terminal, shows the progress of the evaluation
/// meanwhile.
pub fn with_progress<T>(progress: &Arc<Progress>, work: impl FnOnce() -> T) -> T {
    let Some(bar) = terminal_bar() else {
        return work();
    };
    let progress = Arc::clone(progress);
    std::thread::scope(|scope| {
        // The thread ends when the sender is dropped, also during a panic.
        let (running, ended) = channel::<()>();
        scope.spawn(move || {
            let mut begun = Instant::now();
            while ended.recv_timeout(SHOWN_EVERY) == Err(RecvTimeoutError::Timeout) {
                let (done, all) = progress.done_of_total();
                if done == 0 {
                    begun = Instant::now();
                }
                if all > 0 {
                    bar.set_length(all);
                    bar.set_position(done);
                    bar.set_message(evaluating(done, all, begun.elapsed()));
                }
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(running);
        result
    })
}
