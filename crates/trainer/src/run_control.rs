//! Passes the user's requests to the training loop. Any thread may send one; the loop polls between
//! micro-batches.

use runlog::PowerPolicyChoice;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tape::Cancel;

/// A request to a running training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Request {
    /// Save a checkpoint and stop.
    Stop,
    /// Save a checkpoint and continue.
    Checkpoint,
    /// Save a checkpoint because the machine is about to sleep.
    CheckpointBeforeSleep,
    /// Wait with all state in memory.
    Pause,
    /// Continue after a pause.
    Resume,
    /// Set the memory cap in bytes; `None` removes it.
    SetMemoryCap(Option<u64>),
    /// Set the largest fraction of physical memory, `0.0..=1.0`, that all processes together may
    /// use while Ebb trains.
    SetMaxSystemFraction(f64),
    /// Set when the training rests.
    SetCourtesy(PowerPolicyChoice),
    /// Record a stress test of the machine's memory.
    StressTest {
        /// Memory that it holds from now on; 0 if it has given it back.
        bytes: u64,
        /// Seconds after which it gives the memory back by itself.
        seconds: u64,
        /// When it took the memory, or gave it back.
        at: Instant,
    },
}

/// Handle on a running training; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requests: Mutex<VecDeque<Request>>,
    arrived: Condvar,
    cancel: Cancel,
    ready: Mutex<Ready>,
    answered: Condvar,
}

/// Answers to `CheckpointBeforeSleep`.
#[derive(Debug, Default)]
struct Ready {
    answers: u64,
    /// The session is over: nobody answers any longer.
    ended: bool,
}

impl Control {
    /// Queues a request. `Stop` also cancels the running micro-batch, which changes no state.
    pub fn send(&self, request: Request) {
        self.requests().push_back(request);
        if request == Request::Stop {
            self.0.cancel.store(true, Ordering::Relaxed);
        }
        self.0.arrived.notify_all();
    }

    /// Asks for a checkpoint because the machine is about to sleep, and waits until it is written,
    /// at most `limit`. Returns whether it was.
    pub(crate) fn save_before_sleep(&self, limit: Duration) -> bool {
        let ready = self.ready();
        let before = ready.answers;
        let is_waiting = |ready: &mut Ready| !ready.ended && ready.answers == before;
        self.send(Request::CheckpointBeforeSleep);
        let waited = self.0.answered.wait_timeout_while(ready, limit, is_waiting);
        let (ready, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ready.answers != before
    }

    /// The machine may sleep: the checkpoint is written, or none can be.
    pub(crate) fn ready_to_sleep(&self) {
        self.ready().answers += 1;
        self.0.answered.notify_all();
    }

    /// The session is over: the machine may sleep now and whenever it asks.
    pub(crate) fn end_answers(&self) {
        self.ready().ended = true;
        self.0.answered.notify_all();
    }

    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.0.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next request from the queue.
    pub(crate) fn poll(&self) -> Option<Request> {
        self.requests().pop_front()
    }

    /// Blocks until a request arrives, at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let requests = self.requests();
        let _ = self
            .0
            .arrived
            .wait_timeout_while(requests, timeout, |requests| requests.is_empty());
    }

    /// Whether a stop is in the queue.
    pub fn is_stopping(&self) -> bool {
        self.requests().contains(&Request::Stop)
    }

    /// The flag that cancels the running micro-batch at its next tape operation.
    pub(crate) fn cancel(&self) -> Cancel {
        self.0.cancel.clone()
    }

    fn requests(&self) -> MutexGuard<'_, VecDeque<Request>> {
        // A panic elsewhere leaves the queue valid: requests are plain values.
        self.0
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_waits_for_the_checkpoint_but_not_forever() {
        let control = Control::default();
        assert!(!control.save_before_sleep(Duration::from_millis(20)));
        assert_eq!(control.poll(), Some(Request::CheckpointBeforeSleep));
        let training = control.clone();
        let thread = std::thread::spawn(move || {
            while training.poll().is_none() {
                training.wait(Duration::from_millis(50));
            }
            training.ready_to_sleep();
        });
        assert!(control.save_before_sleep(Duration::from_secs(60)));
        thread.join().expect("it only waits");
        control.end_answers();
        let asked = std::time::Instant::now();
        assert!(!control.save_before_sleep(Duration::from_secs(60)));
        assert!(asked.elapsed() < Duration::from_secs(30), "nobody answers");
    }
}
