//! CPU time of a thread, as counted by the kernel. Each platform has a file with the same
//! interface.

#[cfg_attr(target_os = "macos", path = "thread_cpu_time/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "thread_cpu_time/linux.rs")]
mod platform;

pub(crate) use platform::cpu_ms_of;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};
    use std::sync::mpsc::channel;

    /// CPU time that the calling thread has used so far, in milliseconds.
    fn thread_cpu_ms() -> f64 {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        used.tv_sec as f64 * 1e3 + used.tv_nsec as f64 / 1e6
    }

    #[test]
    fn a_thread_measures_the_same_from_inside_and_outside() {
        let (sender, receiver) = channel();
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while thread_cpu_ms() < 20.0 {
                std::hint::spin_loop();
            }
            let _ = sender.send(thread_cpu_ms()); // the test may have failed already
            let _ = ended.recv();
        });
        let within = receiver.recv().expect("the thread sends");
        let outside = cpu_ms_of(&thread).expect("the thread is alive");
        // A Mac counts whole microseconds.
        assert!(
            outside >= within - 0.001 && outside < within + 20.0,
            "{outside} {within}"
        );
        drop(end);
        thread.join().expect("the thread ends");
    }
}
