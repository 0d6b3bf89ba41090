//! The system's announcement that the machine is about to sleep, so that a checkpoint can be
//! written before. Each platform has a file with the same interface; tests use [`ScriptedSleep`].

#[cfg_attr(target_os = "macos", path = "before_sleep/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "before_sleep/other.rs")]
mod platform;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Called before the machine sleeps, on a thread of the system; the machine sleeps when it returns.
pub type BeforeSleep = Box<dyn Fn() + Send + Sync>;

/// Announces that the machine is about to sleep until it is dropped.
pub trait SleepWatch: Send {}

/// Calls `before_sleep` before this machine sleeps. `None` if the system does not announce it.
pub fn open_sleep_watch(before_sleep: BeforeSleep) -> Option<Box<dyn SleepWatch>> {
    platform::open(before_sleep)
}

/// A machine that sleeps when a test asks for it.
#[derive(Default)]
pub struct ScriptedSleep(Mutex<Option<BeforeSleep>>);

/// The watch of a [`ScriptedSleep`]. As on a Mac, dropping it waits for a running call.
struct ScriptedWatch(&'static ScriptedSleep);

impl ScriptedSleep {
    /// Announces nothing yet.
    pub const fn new() -> Self {
        ScriptedSleep(Mutex::new(None))
    }

    /// Calls `before_sleep` at each [`ScriptedSleep::sleep`] from now on.
    pub fn watch(&'static self, before_sleep: BeforeSleep) -> Option<Box<dyn SleepWatch>> {
        *self.before_sleep() = Some(before_sleep);
        Some(Box::new(ScriptedWatch(self)))
    }

    /// The machine is about to sleep. Returns when it may, and whether anything watched it.
    pub fn sleep(&self) -> bool {
        let before_sleep = self.before_sleep();
        before_sleep.as_ref().is_some_and(|before_sleep| {
            before_sleep();
            true
        })
    }

    fn before_sleep(&self) -> MutexGuard<'_, Option<BeforeSleep>> {
        // A panic in a call leaves the value as it was.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SleepWatch for ScriptedWatch {}

impl Drop for ScriptedWatch {
    fn drop(&mut self) {
        *self.0.before_sleep() = None;
    }
}
