//! One thread that reads the machine ten times a second, so that a decision finds a fresh sample and a running piece can be
//! cancelled. Decides nothing itself: it asks `should_cancel`. Where the system tells of pressure by itself, that wakes it.

use crate::controller::{should_cancel, take_in};
use crate::cost::cpu_ms_of;
use crate::error::PressureError;
use crate::policy::Policy;
use crate::sample::MemorySample;
use crate::signal::pressure;
use crate::source::MemorySource;
use crate::state::State;
use crate::wake_up::WakeUp;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// Beat in calm and from pressure .5 on.
const BEAT: Duration = Duration::from_millis(100);
const FAST_BEAT: Duration = Duration::from_millis(50);
const FAST_FROM: f64 = 0.5;
/// Beats in a row that only glance while all is calm: what turns slowly is read once a second.
const GLANCES: u32 = 9;
/// Samples kept for `take_samples`: half a minute at the fast beat.
const KEPT: usize = 600;

/// Reads a source in the background. Dropping it ends the thread.
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _wake_up: Option<WakeUp>,
}

struct Shared {
    source: Mutex<Box<dyn MemorySource>>,
    readings: Mutex<Readings>,
    /// The thread, which sleeps between two beats until it is unparked.
    sleeper: OnceLock<Thread>,
    /// Somebody woke it for a reading.
    woken: AtomicBool,
    end: AtomicBool,
    cancel: Arc<AtomicBool>,
    peak_bytes: AtomicU64,
    ear: Mutex<Option<Ear>>,
}

/// Hears every sample as it is read.
type Ear = Box<dyn FnMut(&MemorySample) + Send>;

#[derive(Default)]
struct Readings {
    latest: Option<MemorySample>,
    untaken: VecDeque<MemorySample>,
    watched: Option<(Policy, State)>,
    cancel_reason: Option<String>,
    last_error: Option<String>,
}

impl Monitor {
    /// Starts the thread. It sets `cancel` when a watched piece should be cancelled; whoever started the piece clears it.
    pub fn start(source: Box<dyn MemorySource>, cancel: Arc<AtomicBool>) -> Self {
        let shared = Arc::new(Shared {
            source: Mutex::new(source),
            readings: Mutex::default(),
            sleeper: OnceLock::new(),
            woken: AtomicBool::new(false),
            end: AtomicBool::new(false),
            cancel,
            peak_bytes: AtomicU64::new(0),
            ear: Mutex::default(),
        });
        let seen = shared.clone();
        // Without a thread the monitor still answers `sample_now`; only cancelling and the polled peak are lost.
        let thread = std::thread::Builder::new()
            .name("pressure".into())
            .spawn(move || seen.beat());
        match &thread {
            Ok(thread) => drop(shared.sleeper.set(thread.thread().clone())),
            Err(error) => {
                locked(&shared.readings).last_error = Some(format!(
                    "the monitor's thread could not be started: {error}"
                ));
            }
        }
        let woken = Arc::downgrade(&shared);
        let wake_up = WakeUp::on_pressure(move || {
            if let Some(shared) = woken.upgrade() {
                shared.wake();
            }
        });
        Self {
            shared,
            thread: thread.ok(),
            _wake_up: wake_up,
        }
    }

    /// The thread reads now instead of at its next beat. A stepped source is not sampled on the side.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// The newest sample, at most a beat old; `None` before the first.
    pub fn latest(&self) -> Option<MemorySample> {
        locked(&self.shared.readings).latest
    }

    /// A fresh sample, read here and now. For a stepped script this is the next line.
    pub fn sample_now(&self) -> Result<MemorySample, PressureError> {
        let sample = locked(&self.shared.source).sample()?;
        self.shared.take_in(sample);
        Ok(sample)
    }

    /// All samples since the last call, oldest first, at most the newest 600: food for `notice`.
    pub fn take_samples(&self) -> Vec<MemorySample> {
        locked(&self.shared.readings).untaken.drain(..).collect()
    }

    /// From now on `ear` hears every sample, on the thread that reads it: it must not wait for anything.
    pub fn listen(&self, ear: impl FnMut(&MemorySample) + Send + 'static) {
        *locked(&self.shared.ear) = Some(Box::new(ear));
    }

    /// CPU time that the thread has used so far, in milliseconds; 0 without a thread. Asked from outside: the thread does not
    /// pay for being measured.
    pub fn cpu_ms(&self) -> f64 {
        self.thread.as_ref().and_then(cpu_ms_of).unwrap_or(0.0)
    }

    /// A piece begins: cancel it when `should_cancel` says so. Call after each decision with the state it gave.
    pub fn watch(&self, policy: Policy, state: State) {
        let mut readings = locked(&self.shared.readings);
        readings.cancel_reason = None;
        readings.watched = Some((policy, state));
    }

    /// The piece has ended; nothing is cancelled until the next `watch`. Gives the reason if this piece was cancelled.
    pub fn unwatch(&self) -> Option<String> {
        let mut readings = locked(&self.shared.readings);
        readings.watched = None;
        readings.cancel_reason.take()
    }

    /// Highest footprint of this process since the last call, in bytes. Exact where the kernel counts it, else by the beat.
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

    /// What the limits set on this process itself leave, in bytes; `None` without such a limit.
    pub fn own_headroom_bytes(&self) -> Option<u64> {
        locked(&self.shared.source).own_headroom_bytes()
    }

    /// What has become unreadable since the last call, in a sentence; each loss once.
    pub fn take_notice(&self) -> Option<String> {
        locked(&self.shared.source).take_notice()
    }

    /// What is read, for the user.
    pub fn describe(&self) -> String {
        locked(&self.shared.source).describe()
    }

    /// Why the newest reading failed, if it did; `latest` is older then.
    pub fn last_error(&self) -> Option<String> {
        locked(&self.shared.readings).last_error.clone()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Release);
        self.shared.rouse();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by then, and there is nothing left to save.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.rouse();
    }

    fn rouse(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }

    /// The thread: read, look, wait.
    fn beat(&self) {
        let mut glances = 0;
        while !self.end.load(Ordering::Acquire) {
            if self.woken.swap(false, Ordering::AcqRel) {
                glances = 0; // whoever woke it knows more than the newest sample
            }
            // Whoever rouses it while it reads is heard at once.
            std::thread::park_timeout(self.read(&mut glances));
        }
    }

    /// One reading, and how long to wait for the next. A stepped source is not sampled on the side.
    fn read(&self, glances: &mut u32) -> Duration {
        let mut source = locked(&self.source);
        if source.is_stepped() {
            self.peak_bytes
                .fetch_max(source.own_bytes(), Ordering::Relaxed);
            return BEAT;
        }
        let seen = look(source.as_mut(), glances);
        drop(source);
        match seen {
            Ok((sample, alarming)) => {
                self.take_in(sample);
                if alarming { FAST_BEAT } else { BEAT }
            }
            Err(error) => {
                locked(&self.readings).last_error = Some(error.to_string());
                BEAT
            }
        }
    }

    fn take_in(&self, sample: MemorySample) {
        self.peak_bytes
            .fetch_max(sample.own_bytes, Ordering::Relaxed);
        if let Some(ear) = locked(&self.ear).as_mut() {
            ear(&sample);
        }
        let mut readings = locked(&self.readings);
        readings.last_error = None;
        readings.latest = Some(sample);
        if readings.untaken.len() == KEPT {
            readings.untaken.pop_front();
        }
        readings.untaken.push_back(sample);
        let Some((policy, state)) = readings.watched.as_mut() else {
            return;
        };
        take_in(policy, state, &sample);
        if let Some(reason) = should_cancel(policy, state, &sample) {
            readings.watched = None;
            readings.cancel_reason = Some(reason);
            self.cancel.store(true, Ordering::Release);
        }
    }
}

/// A glance where `glances` of them are left, else a sample; and whether it calls for the fast beat. A glance that does is made sure of.
fn look(
    source: &mut dyn MemorySource,
    glances: &mut u32,
) -> Result<(MemorySample, bool), PressureError> {
    let alarming = |sample: &MemorySample| pressure(sample).value >= FAST_FROM;
    if let Some(left) = glances.checked_sub(1) {
        let glance = source.glance()?;
        if !alarming(&glance) {
            *glances = left;
            return Ok((glance, false));
        }
    }
    *glances = 0;
    let sample = source.sample()?;
    let alarming = alarming(&sample);
    if !alarming {
        *glances = GLANCES;
    }
    Ok((sample, alarming))
}

/// A panic elsewhere leaves the readings whole: every change is a single assignment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "monitor/tests.rs"]
mod tests;
