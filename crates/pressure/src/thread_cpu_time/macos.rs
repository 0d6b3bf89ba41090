//! macOS: the CPU time of another thread, in whole microseconds.

use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// CPU time that `thread` has used so far, in milliseconds; `None` once it has ended.
pub(crate) fn cpu_ms_of<T>(thread: &JoinHandle<T>) -> Option<f64> {
    // SAFETY: the handle has not been joined, so the thread's number is valid. The port is
    // borrowed, so it needs no release.
    let port = unsafe { libc::pthread_mach_thread_np(thread.as_pthread_t()) };
    let mut info = MaybeUninit::<libc::thread_basic_info>::zeroed();
    let mut count = libc::THREAD_BASIC_INFO_COUNT;
    // SAFETY: `info` is writable and of the type and size that this question fills; a port that no
    // longer exists is an error.
    let code = unsafe {
        libc::thread_info(
            port,
            libc::THREAD_BASIC_INFO as libc::thread_flavor_t,
            info.as_mut_ptr().cast(),
            &raw mut count,
        )
    };
    if code != libc::KERN_SUCCESS {
        return None;
    }
    // SAFETY: the call succeeded and filled the struct of plain numbers, which was zeroed before.
    let info = unsafe { info.assume_init() };
    let ms = |time: libc::time_value_t| {
        f64::from(time.seconds) * 1e3 + f64::from(time.microseconds) / 1e3
    };
    Some(ms(info.user_time) + ms(info.system_time))
}
