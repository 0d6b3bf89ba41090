//! Locks what several threads of the window share. Refuses to know what it is.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value, locked. What the window shares is plain values: whoever panicked left them whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
