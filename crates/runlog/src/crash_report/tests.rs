//! Crash reports of made-up runs.

use super::*;
use crate::event::Started;
use pressure::Decision;

const GB: u64 = 1 << 30;
/// 2026-11-20, 14:02:11 in UTC.
const END: u64 = 1_795_183_331_000;
/// The run's clock at the end.
const END_MS: u64 = 1_000_000;

fn now(text: &str) -> Zoned {
    text.parse().expect("a date")
}

fn today() -> Zoned {
    now("2026-11-20T18:00:00[UTC]")
}

fn started() -> RunEvent {
    RunEvent::Started(Box::new(Started {
        unix_ms: END - END_MS,
        effective_batch: 16,
        ..Started::default()
    }))
}

/// The process resumed the run this many milliseconds before the end.
fn resumed(before: u64) -> RunEvent {
    RunEvent::Resumed {
        at_ms: END_MS - before,
        unix_ms: END - before,
        step: 40,
        process: 1,
        device: "cpu".into(),
        device_reason: String::new(),
        steps: 0,
        epochs: 0,
    }
}

/// A machine with 16 GB, of which Ebb uses 3 and other apps `others_gb`, `before` milliseconds
/// before the end.
fn memory(before: u64, others_gb: f64) -> RunEvent {
    let others = (others_gb * GB as f64) as u64;
    RunEvent::Memory {
        at_ms: END_MS - before,
        sample: MemorySample {
            total_bytes: 16 * GB,
            available_bytes: 13 * GB - others,
            own_bytes: 3 * GB,
            ..MemorySample::default()
        },
        state_bytes: GB,
        pressure: 0.0,
        level: Level::Normal,
        cause: Component::Headroom,
        budget_bytes: 4 * GB,
        micro_batch: 4,
        peak: None,
        limit_bytes: 0,
    }
}

fn decision(before: u64, action: Action, micro_batch: u32, message: &str) -> RunEvent {
    RunEvent::Decision {
        at_ms: END_MS - before,
        step: 40,
        phase: Phase::Train,
        previous_micro_batch: 16,
        micro_batches: 4,
        decision: Decision {
            action,
            micro_batch,
            ..Decision::default()
        },
        message: message.into(),
    }
}

fn report(events: impl IntoIterator<Item = RunEvent>) -> CrashReport {
    let events: Vec<_> = [started()].into_iter().chain(events).collect();
    CrashReport::from_events(&events, END, &today()).expect("there is a sample")
}

#[test]
fn a_crisis_is_reported_with_times_and_numbers() {
    let mut events = vec![decision(300_000, Action::Run, 16, "Starting with 16")];
    events.extend((0..20).map(|i| memory(40_400 - 1_000 * i, 6.0)));
    events.push(decision(
        19_000,
        Action::Run,
        4,
        "Micro-batch reduced from 16 to 4: another app took 2.0 GB in 3 s",
    ));
    events.extend((0..=20).map(|i| memory(20_400 - 1_000 * i, 6.0 + 6.6 * i as f64 / 20.0)));
    let report = report(events);
    assert_eq!(
        report.messages,
        [
            "The last memory sample was taken at 14:02:10, 0.4 s before the end: pressure 0.93, other apps \
             had taken 6.6 GB in the last 20 s; Ebb computed 4 samples at a time (16 per step).",
            "Ebb used 3.0 GB, its budget was 4.0 GB, and 410 MB was free.",
            "The highest memory pressure of the last two minutes was 0.93 at 14:02:10, because only 410 MB was free.",
            "At 14:01:52: Micro-batch reduced from 16 to 4: another app took 2.0 GB in 3 s.",
        ]
    );
    assert_eq!((report.level, report.end_unix_ms), (Level::Critical, END));
    assert_eq!(report.sample_unix_ms, END - 400);
}

#[test]
fn a_run_that_waited_is_not_reported_as_rich_in_memory() {
    let mut events: Vec<_> = (0..5).map(|i| memory(5_000 - 1_000 * i, 3.0)).collect();
    events.insert(1, decision(4_100, Action::Pause, 0, "Paused"));
    events.push(decision(90, Action::Run, 4, "Continued with 4"));
    assert_eq!(
        report(events).messages[2],
        "The highest memory pressure of the last two minutes was 0.22, at 14:02:06."
    );
    // The pause began before the last two minutes.
    let early = decision(200_000, Action::Pause, 0, "Paused");
    assert_eq!(
        report([early, memory(5_000, 3.0)]).messages[2],
        "The highest memory pressure of the last two minutes was 0.22, at 14:02:06."
    );
}

#[test]
fn a_crash_without_pressure_is_reported_as_such() {
    let report = report((0..5).map(|i| memory(4_100 - 1_000 * i, 3.0)));
    assert_eq!(
        report.messages,
        [
            "The last memory sample was taken at 14:02:10, 0.1 s before the end: pressure 0.22, other apps \
             used 3.0 GB.",
            "Ebb used 3.0 GB, its budget was 4.0 GB, and 10.0 GB was free.",
            "The highest memory pressure of the last two minutes was 0.22, at 14:02:06. This is the normal level.",
            "The memory controller changed nothing in the last two minutes.",
        ]
    );
    assert_eq!(report.level, Level::Normal);
}

#[test]
fn the_level_is_that_of_the_last_ten_seconds() {
    let report =
        report((0..60).map(|i| memory(60_000 - 1_000 * i, if i < 40 { 12.5 } else { 2.0 })));
    assert_eq!(report.level, Level::Normal);
    assert!(report.highest_pressure > 0.8, "{report:?}");
}

#[test]
fn only_the_newest_life_is_reported() {
    let events = [
        memory(90_000, 12.9),
        decision(
            89_000,
            Action::Pause,
            0,
            "Paused: other apps need the memory",
        ),
        resumed(10_000),
        memory(2_000, 2.0),
    ];
    let report = report(events);
    assert_eq!(report.messages.len(), 4, "{report:?}");
    assert!(
        report.messages[0].ends_with("other apps used 2.0 GB."),
        "{report:?}"
    );
    assert!(report.highest_pressure < 0.5, "{report:?}");
}

#[test]
fn only_the_last_two_minutes_are_reported() {
    let report = report([
        memory(130_000, 12.9),
        decision(129_000, Action::Run, 4, "Micro-batch reduced from 16 to 4"),
        memory(2_000, 2.0),
    ]);
    assert!(report.highest_pressure < 0.5, "{report:?}");
    // The state of the run is older than that.
    assert!(report.messages[0].ends_with("; Ebb computed 4 samples at a time (16 per step)."));
    assert_eq!(
        report.messages[3],
        "The memory controller changed nothing in the last two minutes."
    );
}

#[test]
fn a_waiting_run_is_reported_as_such() {
    for (action, text) in [
        (Action::Pause, "; the run was paused."),
        (Action::Suspend, "; the run was suspended."),
    ] {
        let report = report([decision(300, action, 0, "Waiting"), memory(200, 12.0)]);
        assert!(report.messages[0].ends_with(text), "{report:?}");
    }
}

#[test]
fn the_date_is_given_unless_it_is_today() {
    let events = [started(), memory(0, 2.0)];
    let check = |day: &str, time: &str| {
        let report = CrashReport::from_events(&events, 0, &now(day)).expect("there is a sample");
        let first = format!("The last memory sample was taken at {time}, 0.0 s before the end");
        assert!(report.messages[0].starts_with(&first), "{report:?}");
    };
    check("2026-11-20T23:00:00[UTC]", "14:02:11");
    check("2026-11-22T09:00:00[UTC]", "14:02:11 on 20 November");
    check("2026-11-20T23:00:00[Europe/Berlin]", "15:02:11");
}

#[test]
fn there_is_no_report_without_a_sample() {
    let report = |events: &[RunEvent]| CrashReport::from_events(events, END, &today());
    assert_eq!(report(&[]), None);
    assert_eq!(report(&[memory(0, 2.0)]), None);
    assert_eq!(
        report(&[started(), decision(0, Action::Pause, 0, "Paused")]),
        None
    );
    // A sample of the previous life does not count.
    assert_eq!(
        report(&[started(), memory(9_000, 2.0), resumed(1_000)]),
        None
    );
}
