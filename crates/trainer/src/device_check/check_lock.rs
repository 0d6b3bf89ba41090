//! The device check that runs in this process. It decides which kernels the whole process uses, so
//! there is one at a time: a run that needs its result waits for it and shows its progress. Once
//! there is a result, every later run of the process uses it, so that no check runs while a run
//! computes with the kernels that it would allow and refuse.

use super::DeviceCheck;
use super::check_observer::CheckObserver;
use super::compare_with_cpu::Finding;
use crate::error::{Result, TrainError};
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a run that waits looks for progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The check of this process.
pub(super) static THIS_PROCESS: CheckLock = CheckLock::new();

/// Lets one check run at a time.
pub(super) struct CheckLock {
    running: Mutex<Option<State>>,
    ended: Condvar,
    /// The result that the runs of this process use.
    decided: Mutex<Option<DeviceCheck>>,
}

#[derive(Clone, Copy, Default)]
struct State {
    progress: Option<(usize, usize)>,
    is_stopping: bool,
}

/// The right to run a check, until it is dropped.
pub(super) struct CheckGuard<'l>(&'l CheckLock);

/// Passes the progress of a check on to its own observer and to those that wait.
pub(super) struct SharesProgress<'g, 'l, 'o> {
    guard: &'g CheckGuard<'l>,
    observer: &'o mut dyn CheckObserver,
}

impl CheckLock {
    pub(super) const fn new() -> Self {
        CheckLock {
            running: Mutex::new(None),
            ended: Condvar::new(),
            decided: Mutex::new(None),
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        // Every change is a single assignment, so a panic elsewhere leaves a valid state.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while another check runs.
    pub(super) fn try_lock(&self) -> Option<CheckGuard<'_>> {
        let mut state = self.state();
        if state.is_some() {
            return None;
        }
        *state = Some(State::default());
        Some(CheckGuard(self))
    }

    /// Waits until no other check runs. The observer sees the progress of the one that does; if it
    /// breaks, that check is stopped as well.
    pub(super) fn lock(&self, observer: &mut dyn CheckObserver) -> Result<CheckGuard<'_>> {
        loop {
            if let Some(guard) = self.try_lock() {
                return Ok(guard);
            }
            if let Some((done, total)) = self.progress()
                && observer.progress(done, total).is_break()
            {
                self.stop();
                return Err(TrainError::CheckStopped);
            }
            let state = self.state();
            let waits = |state: &mut Option<State>| state.is_some();
            drop(self.ended.wait_timeout_while(state, LOOK_EVERY, waits));
        }
    }

    /// Comparisons done and their number, while a check runs.
    pub(super) fn progress(&self) -> Option<(usize, usize)> {
        (*self.state())?.progress
    }

    /// Stops the running check after the present comparison.
    pub(super) fn stop(&self) {
        if let Some(state) = &mut *self.state() {
            state.is_stopping = true;
        }
    }

    /// Stops the running check and waits until it has ended, but no longer than `limit`.
    pub(super) fn stop_and_wait(&self, limit: Duration) {
        self.stop();
        let waits = |state: &mut Option<State>| state.is_some();
        drop(self.ended.wait_timeout_while(self.state(), limit, waits));
    }
}

impl<'l> CheckGuard<'l> {
    /// The result that the runs of this process use, if there is one.
    pub(super) fn decided(&self) -> Option<DeviceCheck> {
        self.decision().clone()
    }

    /// Lets the runs of this process use this result from now on.
    pub(super) fn decide(&self, check: &DeviceCheck) {
        *self.decision() = Some(check.clone());
    }

    fn decision(&self) -> MutexGuard<'_, Option<DeviceCheck>> {
        // Every change is a single assignment, so a panic elsewhere leaves a valid result.
        let decided = self.0.decided.lock();
        decided.unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the check that this guard allows.
    pub(super) fn observe<'g, 'o>(
        &'g self,
        observer: &'o mut dyn CheckObserver,
    ) -> SharesProgress<'g, 'l, 'o> {
        SharesProgress {
            guard: self,
            observer,
        }
    }
}

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        *self.0.state() = None;
        self.0.ended.notify_all();
    }
}

impl CheckObserver for SharesProgress<'_, '_, '_> {
    fn progress(&mut self, done: usize, total: usize) -> ControlFlow<()> {
        if let Some(state) = &mut *self.guard.0.state() {
            state.progress = Some((done, total));
            if state.is_stopping {
                return ControlFlow::Break(());
            }
        }
        self.observer.progress(done, total)
    }

    fn finding(&mut self, finding: &Finding) {
        self.observer.finding(finding);
    }
}
