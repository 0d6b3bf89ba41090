//! A rank that waits for another one leaves the processor to other programs. The processor time of
//! the whole process is measured; nextest runs each test in its own process.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use distributed::{ThreadOptions, thread_ranks};
use std::time::Duration;

/// Processor time of this process, in seconds.
fn used_s() -> f64 {
    // SAFETY: the structure of integers is valid when zeroed, and the call writes it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[test]
fn a_rank_that_waits_uses_little_processor_time() {
    let waits = Duration::from_secs(3);
    std::thread::scope(|scope| {
        for rank in thread_ranks(2, ThreadOptions::default()) {
            scope.spawn(move || {
                let mut group = rank.join().unwrap();
                let before_s = used_s();
                if group.rank() == 0 {
                    std::thread::sleep(waits);
                }
                group.barrier().unwrap();
                if group.rank() == 0 {
                    // Of both ranks together.
                    let share = (used_s() - before_s) / waits.as_secs_f64();
                    println!("{:.1} % of a core for two ranks", 100.0 * share);
                    assert!(share < 0.06, "{share}");
                }
                group.leave().unwrap();
            });
        }
    });
}
