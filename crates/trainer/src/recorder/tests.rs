//! The recorder beside a real monitor, and with a disk that does not answer.

use super::*;
use pressure::{DeviceReadings, Monitor, source};
use runlog::{RunFolder, read_flight};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::SystemTime;

/// The monitor's beats that are watched: three seconds.
const BEATS: usize = 30;
/// The most that the monitor may cost, as a share of a core.
const MOST: f64 = 0.001;

fn unix_ms() -> u64 {
    let age = SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    age.map_or(0, |age| age.as_millis() as u64)
}

/// CPU time of the monitor's thread and of the recorder's, as shares of a core.
fn cost(ring: Option<FlightRing>) -> (f64, f64) {
    let recorder = ring.map(|ring| Recorder::start(ring, unix_ms, 16, 0));
    let (tell, heard) = channel();
    let monitor = Monitor::start(source::open(DeviceReadings::default()), Arc::default());
    let begun = Instant::now();
    let mut ear = recorder.as_ref().map(Recorder::ear);
    monitor.listen(move |sample| {
        if let Some(ear) = &mut ear {
            ear(sample);
        }
        let _ = tell.send(());
    });
    (0..BEATS).for_each(|_| heard.recv().expect("the monitor reads"));
    let ms = begun.elapsed().as_secs_f64() * 1000.0;
    let recorder_ms = recorder.as_ref().map_or(0.0, Recorder::cpu_ms);
    (monitor.cpu_ms() / ms, recorder_ms / ms)
}

#[test]
fn the_monitor_costs_a_thousandth_of_a_core_with_the_recorder_and_without() {
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
    assert!(alone <= MOST && monitor <= MOST, "{alone} {monitor}");
    assert!(recorder <= MOST, "{recorder}");
    let records = read_flight(&run).expect("it can be read");
    assert!(
        matches!(records[0], FlightRecord::Life { .. }),
        "{records:?}"
    );
    assert!(records.len() > BEATS, "{} records", records.len());
}

/// A clock that a test turns.
static CLOCK: AtomicU64 = AtomicU64::new(1_000);

#[test]
fn a_disk_that_does_not_answer_keeps_nobody_waiting_and_readings_are_thinned() {
    let recorder = Recorder {
        desk: Arc::default(),
        thread: None,
        unix_ms: || CLOCK.load(Ordering::Relaxed),
        standing: Standing {
            step: 0,
            action: Action::Run,
            micro_batch: 0,
            effective_batch: 16,
            budget_bytes: 0,
        },
    };
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
