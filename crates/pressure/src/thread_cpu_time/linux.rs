//! Linux: the CPU clock of another thread.

use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// CPU time that `thread` has used so far, in milliseconds; `None` once it has ended.
pub(crate) fn cpu_ms_of<T>(thread: &JoinHandle<T>) -> Option<f64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the handle has not been joined, so the thread's number is valid, and `clock` is
    // writable.
    let code = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) };
    if code != 0 {
        return None;
    }
    let mut used = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `used` is writable and of the type that the call fills; a clock that no longer exists
    // is an error.
    let code = unsafe { libc::clock_gettime(clock, used.as_mut_ptr()) };
    if code != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled the struct of plain numbers, which was zeroed before.
    let used = unsafe { used.assume_init() };
    Some(used.tv_sec as f64 * 1e3 + used.tv_nsec as f64 / 1e6)
}
