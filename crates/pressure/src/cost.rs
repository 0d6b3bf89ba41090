//! What a thread costs: its CPU time, by the kernel's count. Knows no thread by name. The files for each platform are twins.

#[cfg_attr(target_os = "macos", path = "cost/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "cost/linux.rs")]
mod platform;

use rustix::time::{ClockId, clock_gettime};

pub(crate) use platform::cpu_ms_of;

/// CPU time that the calling thread has used so far, in milliseconds. A quarter of a microsecond.
pub fn thread_cpu_ms() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 * 1e3 + used.tv_nsec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_is_measured_from_outside_as_from_within() {
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while thread_cpu_ms() < 20.0 {
                std::hint::spin_loop();
            }
            let _ = tell.send(thread_cpu_ms()); // the test may have failed already
            let _ = ended.recv();
        });
        let within = told.recv().expect("it works and tells");
        let outside = cpu_ms_of(&thread).expect("it lives");
        // A Mac counts whole microseconds.
        assert!(
            outside >= within - 0.001 && outside < within + 20.0,
            "{outside} {within}"
        );
        drop(end);
        thread.join().expect("it ends");
    }
}
