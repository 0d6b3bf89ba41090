//! The user's wishes on their way into the loop. Any thread may ask; the loop polls between pieces.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tape::Cancel;

/// What a user may ask of a running training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Request {
    /// Stop & checkpoint.
    Stop,
    /// Checkpoint now and go on.
    Checkpoint,
    /// Keep everything and wait.
    Pause,
    /// Go on after a pause.
    Resume,
    /// Another memory cap, in bytes; `None` lifts it.
    SetMemoryCap(Option<u64>),
    /// Another budget line, as the share of all memory that everybody together may fill.
    SetPoliteness(f64),
}

/// Handle on a running training; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requests: Mutex<VecDeque<Request>>,
    arrived: Condvar,
    cancel: Cancel,
}

impl Control {
    /// Asks. A stop also cancels the running piece, which has then touched nothing.
    pub fn ask(&self, request: Request) {
        self.requests().push_back(request);
        if request == Request::Stop {
            self.0.cancel.store(true, Ordering::Relaxed);
        }
        self.0.arrived.notify_all();
    }

    /// The next wish, if there is one.
    pub(crate) fn poll(&self) -> Option<Request> {
        self.requests().pop_front()
    }

    /// Waits until somebody asks, at most `longest`.
    pub(crate) fn wait(&self, longest: Duration) {
        let requests = self.requests();
        let _ = self
            .0
            .arrived
            .wait_timeout_while(requests, longest, |requests| requests.is_empty());
    }

    /// A stop is waiting to be polled.
    pub(crate) fn is_stopping(&self) -> bool {
        self.requests().contains(&Request::Stop)
    }

    /// The flag that ends the running piece at the next operation.
    pub(crate) fn cancel(&self) -> Cancel {
        self.0.cancel.clone()
    }

    fn requests(&self) -> MutexGuard<'_, VecDeque<Request>> {
        // A panic elsewhere leaves the queue whole: requests are plain values.
        self.0
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
