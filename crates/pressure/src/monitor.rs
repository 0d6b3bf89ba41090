//! One thread that reads the machine ten times per second, so that a decision finds a fresh sample
//! and a running micro-batch can be cancelled. Decides nothing itself: it asks `should_cancel`. If
//! the system sends notifications of memory pressure, they wake the thread.

use crate::controller::should_cancel;
use crate::controller_state::ControllerState;
use crate::error::PressureError;
use crate::memory_sample::{Level, MemorySample};
use crate::policy::{
    BUFFERED_SAMPLES, FAST_SAMPLE_INTERVAL, FAST_SAMPLES, Policy, SAMPLE_INTERVAL,
};
use crate::pressure_level::pressure;
use crate::pressure_notification::PressureNotification;
use crate::source::MemorySource;
use crate::thread_cpu_time::cpu_ms_of;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// What follows if the thread has ended.
const WITHOUT_THREAD: &str = "Ebb now measures memory only before each micro-batch, and cannot cancel a micro-batch that is running.";

/// Reads a source in the background. Dropping it ends the thread.
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _wake_up: Option<PressureNotification>,
}

struct Shared {
    source: Mutex<Box<dyn MemorySource>>,
    readings: Mutex<Readings>,
    /// The thread, which sleeps between two readings until it is unparked.
    sleeper: OnceLock<Thread>,
    /// Whether the thread was woken for a reading.
    woken: AtomicBool,
    end: AtomicBool,
    cancel: Arc<AtomicBool>,
    peak_bytes: AtomicU64,
    observer: Mutex<Option<Observer>>,
}

/// Called with every sample.
type Observer = Box<dyn FnMut(&MemorySample) + Send>;

#[derive(Default)]
struct Readings {
    latest: Option<MemorySample>,
    /// Samples since the last `take_samples`, oldest first.
    untaken: VecDeque<MemorySample>,
    watched: Option<(Policy, ControllerState)>,
    cancel_reason: Option<String>,
    /// A sentence about the thread, if it could not start or has panicked.
    thread_notice: Option<String>,
}

impl Monitor {
    /// Starts the thread. It sets `cancel` when a watched micro-batch should be cancelled; the
    /// caller clears it.
    pub fn start(source: Box<dyn MemorySource>, cancel: Arc<AtomicBool>) -> Self {
        Self::start_with(source, cancel, spawn)
    }

    /// Starts the thread with `spawn`.
    fn start_with(
        source: Box<dyn MemorySource>,
        cancel: Arc<AtomicBool>,
        spawn: fn(Arc<Shared>) -> io::Result<JoinHandle<()>>,
    ) -> Self {
        let shared = Arc::new(Shared {
            source: Mutex::new(source),
            readings: Mutex::default(),
            sleeper: OnceLock::new(),
            woken: AtomicBool::new(false),
            end: AtomicBool::new(false),
            cancel,
            peak_bytes: AtomicU64::new(0),
            observer: Mutex::default(),
        });
        // Without a thread `sample_now` still works; only cancelling and the polled peak are lost.
        let thread = match spawn(shared.clone()) {
            Ok(thread) => {
                drop(shared.sleeper.set(thread.thread().clone()));
                Some(thread)
            }
            Err(error) => {
                shared.report_thread(format!(
                    "The thread that measures memory could not start ({error}). {WITHOUT_THREAD}"
                ));
                None
            }
        };
        let weak = Arc::downgrade(&shared);
        let wake_up = PressureNotification::on_pressure(move || {
            if let Some(shared) = weak.upgrade() {
                shared.wake();
            }
        });
        Self {
            shared,
            thread,
            _wake_up: wake_up,
        }
    }

    /// Makes the thread read now instead of at its next interval. A stepped source is not sampled.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// The newest sample, at most one interval old; `None` before the first.
    pub fn latest(&self) -> Option<MemorySample> {
        locked(&self.shared.readings).latest
    }

    /// A fresh sample, read on the calling thread. For a stepped script this is the next line.
    ///
    /// # Errors
    /// The source could not be read.
    pub fn sample_now(&self) -> Result<MemorySample, PressureError> {
        let sample = locked(&self.shared.source).sample()?;
        self.shared.record(sample);
        Ok(sample)
    }

    /// All samples since the last call, oldest first, at most the newest 600. Pass them to
    /// [`record_sample`](crate::record_sample).
    pub fn take_samples(&self) -> Vec<MemorySample> {
        locked(&self.shared.readings).untaken.drain(..).collect()
    }

    /// Calls `observer` with every sample from now on, on the thread that reads it. It must not
    /// block.
    pub fn set_observer(&self, observer: impl FnMut(&MemorySample) + Send + 'static) {
        *locked(&self.shared.observer) = Some(Box::new(observer));
    }

    /// CPU time that the thread has used so far, in milliseconds; 0 without a thread. Read from the
    /// calling thread, so that the measurement adds nothing.
    pub fn cpu_ms(&self) -> f64 {
        self.thread.as_ref().and_then(cpu_ms_of).unwrap_or(0.0)
    }

    /// Watches the next micro-batch and cancels it when `should_cancel` returns true. Call this
    /// after each decision with its state.
    pub fn watch(&self, policy: Policy, state: ControllerState) {
        let mut readings = locked(&self.shared.readings);
        readings.cancel_reason = None;
        readings.watched = Some((policy, state));
    }

    /// Ends the watch: nothing is cancelled until the next `watch`. Returns the reason if the
    /// micro-batch was cancelled.
    pub fn unwatch(&self) -> Option<String> {
        let mut readings = locked(&self.shared.readings);
        readings.watched = None;
        readings.cancel_reason.take()
    }

    /// Highest footprint of this process since the last call, in bytes. Exact if the kernel counts
    /// it, otherwise polled.
    pub fn take_peak(&self) -> u64 {
        let mut source = locked(&self.shared.source);
        let now = source.own_bytes();
        let exact = source.take_peak_bytes().unwrap_or(0);
        self.shared
            .peak_bytes
            .swap(0, Ordering::Relaxed)
            .max(now)
            .max(exact)
    }

    /// Bytes that the limits on this process leave; `None` without a limit.
    pub fn own_headroom_bytes(&self) -> Option<u64> {
        locked(&self.shared.source).own_headroom_bytes()
    }

    /// A sentence about readings that were lost since the last call, or about the thread if it
    /// could not start or has panicked. Each loss is reported once.
    pub fn take_notice(&self) -> Option<String> {
        let of_thread = locked(&self.shared.readings).thread_notice.take();
        of_thread.or_else(|| locked(&self.shared.source).take_notice())
    }

    /// A description of the readings, for the user.
    pub fn describe(&self) -> String {
        locked(&self.shared.source).describe()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Release);
        self.shared.unpark();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

/// Starts the thread that reads the source.
fn spawn(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("pressure".into())
        .spawn(move || {
            // The state stays valid: see `locked`.
            if catch_unwind(AssertUnwindSafe(|| shared.run())).is_err() {
                shared.report_thread(format!(
                    "The thread that measures memory ended because of an error in Ebb. {WITHOUT_THREAD}"
                ));
            }
        })
}

impl Shared {
    /// Keeps a sentence about the thread for the next `take_notice`.
    fn report_thread(&self, notice: String) {
        locked(&self.readings).thread_notice = Some(notice);
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }

    /// The thread's loop: read, record, wait.
    fn run(&self) {
        let mut fast_left = 0;
        while !self.end.load(Ordering::Acquire) {
            if self.woken.swap(false, Ordering::AcqRel) {
                fast_left = 0; // a wake-up asks for a full sample
            }
            // A wake-up during the reading ends the wait at once.
            std::thread::park_timeout(self.read(&mut fast_left));
        }
    }

    /// Takes one reading and returns how long to wait for the next. A stepped source is not
    /// sampled.
    fn read(&self, fast_left: &mut u32) -> Duration {
        let mut source = locked(&self.source);
        if source.is_stepped() {
            self.peak_bytes
                .fetch_max(source.own_bytes(), Ordering::Relaxed);
            return SAMPLE_INTERVAL;
        }
        let sample = take_sample(source.as_mut(), fast_left);
        drop(source);
        match sample {
            Ok(sample) => {
                self.record(sample);
                if is_alarming(&sample) {
                    FAST_SAMPLE_INTERVAL
                } else {
                    SAMPLE_INTERVAL
                }
            }
            Err(_) => SAMPLE_INTERVAL,
        }
    }

    fn record(&self, sample: MemorySample) {
        self.peak_bytes
            .fetch_max(sample.own_bytes, Ordering::Relaxed);
        if let Some(observer) = locked(&self.observer).as_mut() {
            observer(&sample);
        }
        let mut readings = locked(&self.readings);
        readings.latest = Some(sample);
        if readings.untaken.len() == BUFFERED_SAMPLES {
            readings.untaken.pop_front();
        }
        readings.untaken.push_back(sample);
        let Some((policy, state)) = readings.watched.as_mut() else {
            return;
        };
        state.record(policy, &sample);
        if let Some(reason) = should_cancel(policy, state, &sample) {
            readings.watched = None;
            readings.cancel_reason = Some(reason);
            self.cancel.store(true, Ordering::Release);
        }
    }
}

/// Takes a fast sample if `fast_left` allows one, otherwise a full one. An alarming fast sample is
/// confirmed by a full one.
fn take_sample(
    source: &mut dyn MemorySource,
    fast_left: &mut u32,
) -> Result<MemorySample, PressureError> {
    if let Some(left) = fast_left.checked_sub(1) {
        let sample = source.sample_fast()?;
        if !is_alarming(&sample) {
            *fast_left = left;
            return Ok(sample);
        }
    }
    *fast_left = 0;
    let sample = source.sample()?;
    if !is_alarming(&sample) {
        *fast_left = FAST_SAMPLES;
    }
    Ok(sample)
}

/// Whether a sample calls for the fast interval.
fn is_alarming(sample: &MemorySample) -> bool {
    pressure(sample).level() >= Level::Warning
}

/// Ignores poisoning: every change is a single assignment, so a panic elsewhere leaves valid
/// readings.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
