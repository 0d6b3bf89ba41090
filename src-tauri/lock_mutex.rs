//! Locks a mutex that several threads of the window share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The locked value. A panic in another thread is ignored: the shared values are plain, so each is
/// complete at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
