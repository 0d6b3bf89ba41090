//! The recorder beside a real monitor, and with a disk that does not answer.

use super::*;
use pressure::{DeviceReadings, Monitor, source, thread_cpu_ms};
use runlog::{RunFolder, read_flight};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

/// The monitor's beats that are watched: three seconds.
const BEATS: usize = 30;
/// What the monitor and the recorder may cost as a share of a core, by the work of a reading.
const MOST: f64 = 0.001;
/// And with the waking of their threads, which costs what others leave of the caches: here beside other tests.
const LIMIT: f64 = 0.005;
/// Readings in a row, each as the monitor takes it.
const ROW: u32 = 500;

fn unix_ms() -> u64 {
    let age = SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    age.map_or(0, |age| age.as_millis() as u64)
}

/// CPU time of the monitor's thread and of the recorder's, as shares of a core.
fn cost(ring: Option<FlightRing>) -> (f64, f64) {
    let recorder = without_thread(unix_ms);
    let desk = Arc::clone(&recorder.desk);
    let writer = ring.map(|ring| {
        std::thread::spawn(move || {
            keep(ring, &desk);
            thread_cpu_ms()
        })
    });
    // Not by a channel: to wake this thread would count as the monitor's.
    let beats = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&beats);
    let monitor = Monitor::start(source::open(DeviceReadings::default()), Arc::default());
    let begun = Instant::now();
    let mut ear = writer.as_ref().map(|_| recorder.ear());
    monitor.set_observer(move |sample| {
        if let Some(ear) = &mut ear {
            ear(sample);
        }
        counted.fetch_add(1, Ordering::Relaxed);
    });
    while beats.load(Ordering::Relaxed) < BEATS {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let ms = begun.elapsed().as_secs_f64() * 1000.0;
    let monitor_ms = monitor.cpu_ms();
    drop(recorder);
    let writer_ms = writer.map_or(0.0, |writer| writer.join().expect("it ends"));
    (monitor_ms / ms, writer_ms / ms)
}

/// A recorder whose records nobody takes, unless the test does.
fn without_thread(unix_ms: fn() -> u64) -> Recorder {
    Recorder {
        desk: Arc::default(),
        thread: None,
        unix_ms,
        standing: Standing {
            step: 0,
            action: Action::Run,
            micro_batch: 0,
            effective_batch: 16,
            budget_bytes: 0,
        },
    }
}

#[test]
fn a_monitor_costs_next_to_nothing_with_the_recorder_and_without() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = RunFolder {
        path: folder.path().into(),
    };
    let claim = run.claim().expect("it is free");
    let (alone, _) = cost(None);
    let ring = FlightRing::open(&run, &claim).expect("it can be made");
    let (monitor, recorder) = cost(Some(ring));
    println!(
        "at 10 readings a second: the monitor alone {:.4} % of a core, beside the recorder {:.4} %, the recorder {:.4} %",
        100.0 * alone,
        100.0 * monitor,
        100.0 * recorder
    );
    assert!(alone <= LIMIT && monitor <= LIMIT, "{alone} {monitor}");
    assert!(recorder <= LIMIT, "{recorder}");
    let records = read_flight(&run).expect("it can be read");
    assert!(records.len() >= BEATS, "{} records", records.len());
}

#[test]
fn the_work_of_ten_readings_a_second_is_a_thousandth_of_a_core() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = RunFolder {
        path: folder.path().into(),
    };
    let claim = run.claim().expect("it is free");
    let mut ring = FlightRing::open(&run, &claim).expect("it can be made");
    let mut source = source::open(DeviceReadings::default());
    let mut readings = Vec::new();
    let begun_ms = thread_cpu_ms();
    for _ in 0..ROW {
        let sample = source.sample().expect("this machine can be read");
        readings.push((pressure::pressure(&sample), sample));
    }
    let read_ms = thread_cpu_ms();
    for (_, sample) in &readings {
        let (unix_ms, sample) = (unix_ms(), *sample);
        let written = ring.write(&FlightRecord::Sample { unix_ms, sample });
        written.expect("it can be written");
    }
    let ended_ms = thread_cpu_ms();
    let share = |ms: f64| ms / f64::from(ROW) * 10.0 / 1000.0;
    let (reading, writing) = (share(read_ms - begun_ms), share(ended_ms - read_ms));
    println!(
        "ten readings a second: {:.4} % of a core to read, {:.4} % to record",
        100.0 * reading,
        100.0 * writing
    );
    assert!(reading <= MOST && writing <= MOST, "{reading} {writing}");
}

/// A clock that a test turns.
static CLOCK: AtomicU64 = AtomicU64::new(1_000);

#[test]
fn a_disk_that_does_not_answer_keeps_nobody_waiting_and_readings_are_thinned() {
    let recorder = without_thread(|| CLOCK.load(Ordering::Relaxed));
    let mut ear = recorder.ear();
    let mut hear = |at_ms| {
        CLOCK.store(at_ms, Ordering::Relaxed);
        ear(&MemorySample::default());
    };
    // A thousand readings in a second: one for each piece of a small network.
    (1_000..2_000).for_each(&mut hear);
    let told = || std::mem::take(&mut recorder.desk.papers().waiting).len();
    assert_eq!(told(), 23);
    // The clock was set back: it goes on.
    hear(500);
    assert_eq!(told(), 1);
    // Nobody takes anything any more.
    (1..=2 * WAITING as u64).for_each(|beat| hear(10_000 + 50 * beat));
    assert_eq!(told(), WAITING);
}

#[test]
fn where_the_run_stands_is_told_by_its_events() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = RunFolder {
        path: folder.path().into(),
    };
    let claim = run.claim().expect("it is free");
    let ring = FlightRing::open(&run, &claim).expect("it can be made");
    let mut recorder = Recorder::start(ring, || 7_000, 16, 3);
    let decision = pressure::Decision {
        micro_batch: 4,
        budget_bytes: 9,
        ..pressure::Decision::default()
    };
    recorder.hear(&RunEvent::Decision {
        at_ms: 1,
        step: 3,
        phase: Phase::Train,
        previous_micro_batch: 8,
        pieces: 4,
        decision,
        sentence: "Shrunk 8 to 4: because".into(),
    });
    drop(recorder);
    let standing = FlightRecord::Standing {
        unix_ms: 7_000,
        step: 3,
        action: Action::Run,
        micro_batch: 4,
        effective_batch: 16,
        budget_bytes: 9,
    };
    let sentence = FlightRecord::Decision {
        unix_ms: 7_000,
        sentence: "Shrunk 8 to 4: because".into(),
    };
    let records = read_flight(&run).expect("it can be read");
    assert_eq!(records[1..], [sentence, standing]);
}
