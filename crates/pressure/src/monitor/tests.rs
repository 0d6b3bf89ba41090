//! The monitor with a source that the test controls. Waiting uses channels, never sleep.

use super::*;
use crate::memory_sample::Level;
use std::sync::mpsc::{Receiver, Sender, channel};

const GB: u64 = 1 << 30;

/// Returns the samples it is sent, then the last one again, and reports each call.
struct Controlled {
    next: Receiver<MemorySample>,
    last: MemorySample,
    asked: Sender<()>,
    stepped: bool,
}

impl MemorySource for Controlled {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        if let Ok(next) = self.next.try_recv() {
            self.last = next;
        }
        // The test may have ended already.
        let _ = self.asked.send(());
        Ok(self.last)
    }
    fn describe(&self) -> String {
        "controlled".into()
    }
    fn own_bytes(&mut self) -> u64 {
        self.last.own_bytes
    }
    fn is_stepped(&self) -> bool {
        self.stepped
    }
}

struct Bench {
    monitor: Monitor,
    cancel: Arc<AtomicBool>,
    hand: Sender<MemorySample>,
    asked: Receiver<()>,
}

fn bench(first: MemorySample, stepped: bool) -> Bench {
    let (hand, next) = channel();
    let (request, asked) = channel();
    let cancel = Arc::new(AtomicBool::new(false));
    let source = Controlled {
        next,
        last: first,
        asked: request,
        stepped,
    };
    Bench {
        monitor: Monitor::start(Box::new(source), cancel.clone()),
        cancel,
        hand,
        asked,
    }
}

fn sample(at_ms: u64, own: u64, available: u64) -> MemorySample {
    MemorySample {
        at_ms,
        total_bytes: 36 * GB,
        own_bytes: own * GB,
        available_bytes: available * GB,
        ..MemorySample::default()
    }
}

#[test]
fn the_thread_reads_without_being_asked() {
    let bench = bench(sample(5, 8, 20), false);
    bench.asked.recv().expect("the thread reads");
    bench.asked.recv().expect("and reads again");
    assert_eq!(bench.monitor.latest(), Some(sample(5, 8, 20)));
    assert!(!bench.monitor.take_samples().is_empty());
}

/// Forty readings, which would take four seconds at the normal interval.
#[test]
fn a_wake_up_reads_at_once() {
    let bench = bench(sample(5, 8, 20), false);
    bench.asked.recv().expect("the thread reads");
    let is_at_once = || {
        let begun = std::time::Instant::now();
        for _ in 0..40 {
            bench.monitor.wake();
            bench.asked.recv().expect("it is woken");
        }
        begun.elapsed() < 20 * SAMPLE_INTERVAL
    };
    // Other processes may hold some of them up.
    assert!((0..5).any(|_| is_at_once()));
}

#[test]
fn a_stepped_source_is_read_only_on_demand() {
    let bench = bench(sample(5, 8, 20), true);
    assert_eq!(bench.monitor.take_peak(), 8 * GB);
    assert_eq!(bench.monitor.latest(), None);
    assert!(bench.asked.try_recv().is_err());
    assert_eq!(
        bench.monitor.sample_now().expect("readable"),
        sample(5, 8, 20)
    );
    assert_eq!(bench.monitor.latest(), Some(sample(5, 8, 20)));
}

#[test]
fn a_peak_is_reported_once() {
    let bench = bench(sample(0, 3, 20), true);
    for own in [3, 11, 4] {
        bench
            .hand
            .send(sample(own, own, 20))
            .expect("the source lives");
        bench.monitor.sample_now().expect("readable");
    }
    assert_eq!(bench.monitor.take_peak(), 11 * GB);
    assert_eq!(bench.monitor.take_peak(), 4 * GB);
}

#[test]
fn only_a_watched_micro_batch_is_cancelled_and_only_once() {
    let bench = bench(sample(0, 14, 15), true);
    let crisis = MemorySample {
        kernel_level: Some(Level::Critical),
        ..sample(1_000, 14, 1)
    };
    bench.hand.send(crisis).expect("the source lives");
    bench.monitor.sample_now().expect("readable");
    assert!(!bench.cancel.load(Ordering::Acquire), "nothing is watched");

    bench
        .monitor
        .watch(Policy::default(), ControllerState::default());
    bench.monitor.sample_now().expect("readable");
    assert!(
        bench.cancel.swap(false, Ordering::AcqRel),
        "memory is over the cancel limit and over the budget"
    );
    bench.monitor.sample_now().expect("readable");
    assert!(
        !bench.cancel.load(Ordering::Acquire),
        "a micro-batch is cancelled once"
    );
    assert_eq!(
        bench.monitor.unwatch().as_deref(),
        Some("only 1.0 GB is free")
    );

    bench
        .monitor
        .watch(Policy::default(), ControllerState::default());
    bench
        .hand
        .send(sample(2_000, 14, 15))
        .expect("the source lives");
    bench.monitor.sample_now().expect("readable");
    assert!(!bench.cancel.load(Ordering::Acquire), "calm");
    assert_eq!(bench.monitor.unwatch(), None);
}

#[test]
fn dropping_the_monitor_ends_the_thread() {
    let Bench { monitor, asked, .. } = bench(sample(0, 3, 20), false);
    asked.recv().expect("the thread reads");
    drop(monitor);
    while asked.try_recv().is_ok() {}
    assert!(
        asked.recv().is_err(),
        "the thread drops its memory source when it ends"
    );
}

#[test]
fn an_observer_gets_every_sample_and_cpu_time_is_counted() {
    let bench = bench(sample(5, 8, 20), false);
    let (report, observed) = channel();
    bench.monitor.set_observer(move |sample| {
        // The test may have ended already.
        let _ = report.send(*sample);
    });
    for _ in 0..3 {
        assert_eq!(observed.recv().expect("the thread reads"), sample(5, 8, 20));
    }
    let used = bench.monitor.cpu_ms();
    assert!(used > 0.0 && used < 1_000.0, "{used}");
}

/// Reports whether each sample was a fast one, and shows this percentage of memory as used.
struct FastOrFull(Sender<bool>, Receiver<u64>, u64);

impl MemorySource for FastOrFull {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        self.take(false)
    }
    fn sample_fast(&mut self) -> Result<MemorySample, PressureError> {
        self.take(true)
    }
    fn describe(&self) -> String {
        "fast or full".into()
    }
}

impl FastOrFull {
    fn take(&mut self, fast: bool) -> Result<MemorySample, PressureError> {
        self.2 = self.1.try_iter().last().unwrap_or(self.2);
        let _ = self.0.send(fast); // the test may have ended already
        Ok(sample(0, 0, 36 - 36 * self.2 / 100))
    }
}

#[test]
fn nine_of_ten_samples_are_fast_in_calm_and_none_under_pressure() {
    let (report, reported) = channel();
    let (use_percent, used) = channel();
    let mut source = FastOrFull(report, used, 10);
    let mut fast_left = 0;
    let mut beats = |count: usize| -> Vec<bool> {
        for _ in 0..count {
            take_sample(&mut source, &mut fast_left).expect("it never fails");
        }
        reported.try_iter().collect()
    };
    let (full, fast) = (false, true);
    let mut ten = [fast; 10];
    ten[0] = full;
    assert_eq!(beats(20), [ten, ten].concat());
    assert_eq!(beats(2), [full, fast]);
    use_percent.send(90).expect("the source lives");
    assert_eq!(beats(3), [fast, full, full, full], "made sure of at once");
    use_percent.send(10).expect("the source lives");
    assert_eq!(beats(10), ten);
}

#[test]
fn a_wake_up_takes_a_full_sample() {
    let (report, reported) = channel();
    let (_use, used) = channel();
    let monitor = Monitor::start(Box::new(FastOrFull(report, used, 10)), Arc::default());
    assert_eq!(reported.recv(), Ok(false), "the first");
    assert_eq!(reported.recv(), Ok(true), "one interval later");
    monitor.wake();
    let next = [reported.recv(), reported.recv()];
    assert!(next.contains(&Ok(false)), "{next:?}");
}

/// Panics at the second reading of the thread.
struct Panicking(MemorySample, u32);

impl MemorySource for Panicking {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        self.1 += 1;
        assert_ne!(self.1, 2, "a panic of the test");
        Ok(self.0)
    }
    fn describe(&self) -> String {
        "panicking".into()
    }
}

#[test]
fn a_panic_of_the_thread_is_reported_once() {
    let source = Panicking(sample(0, 3, 20), 0);
    let mut monitor = Monitor::start(Box::new(source), Arc::default());
    let thread = monitor.thread.take().expect("the thread has started");
    thread.join().expect("the panic was caught");
    let notice = monitor.take_notice().expect("it is reported");
    assert!(
        notice.contains("ended because of an error in Ebb") && notice.ends_with(WITHOUT_THREAD),
        "{notice}"
    );
    assert_eq!(monitor.take_notice(), None, "once");
    let now = monitor.sample_now().expect("the source is still read");
    assert_eq!(now, sample(0, 3, 20));
}

#[test]
fn a_thread_that_cannot_start_is_reported_once() {
    fn refuse(_: Arc<Shared>) -> io::Result<JoinHandle<()>> {
        Err(io::Error::from(io::ErrorKind::WouldBlock))
    }
    let source = FastOrFull(channel().0, channel().1, 10);
    let monitor = Monitor::start_with(Box::new(source), Arc::default(), refuse);
    let notice = monitor.take_notice().expect("it is reported");
    assert!(
        notice.contains("could not start (") && notice.ends_with(WITHOUT_THREAD),
        "{notice}"
    );
    assert_eq!(monitor.take_notice(), None, "once");
    monitor.sample_now().expect("the source is still read");
    assert!(monitor.cpu_ms().abs() < f64::EPSILON);
}
