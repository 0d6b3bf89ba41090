//! Rings of runs that ended without a word, and what is said of them.

use super::*;

const GB: u64 = 1 << 30;
/// 2026-11-20, 14:02:11 in UTC.
const END: u64 = 1_795_183_331_000;

fn now(text: &str) -> Zoned {
    text.parse().expect("a date")
}

fn today() -> Zoned {
    now("2026-11-20T18:00:00[UTC]")
}

/// A machine of 16 GB where Ebb holds 3 and other apps this much, `before` milliseconds before the end.
fn sample(before: u64, others_gb: f64) -> FlightRecord {
    let others = (others_gb * GB as f64) as u64;
    FlightRecord::Sample {
        unix_ms: END - before,
        sample: MemorySample {
            total_bytes: 16 * GB,
            available_bytes: 13 * GB - others,
            own_bytes: 3 * GB,
            ..MemorySample::default()
        },
    }
}

fn standing(before: u64, action: Action, micro_batch: u32) -> FlightRecord {
    FlightRecord::Standing {
        unix_ms: END - before,
        step: 40,
        action,
        micro_batch,
        effective_batch: 16,
        budget_bytes: 4 * GB,
    }
}

fn decision(before: u64, sentence: &str) -> FlightRecord {
    FlightRecord::Decision {
        unix_ms: END - before,
        sentence: sentence.into(),
    }
}

fn told(records: &[FlightRecord]) -> Aftermath {
    aftermath(records, END, &today()).expect("there is a reading")
}

#[test]
fn a_crisis_is_told_with_times_and_numbers() {
    let mut records = vec![decision(300_000, "Starting with 16: there is room for it")];
    records.extend((0..100).map(|i| sample(40_000 - 200 * i, 6.0)));
    records.push(decision(
        19_000,
        "Shrunk 16 to 4: another app took 2.0 GB in 3 s",
    ));
    records.push(standing(18_000, Action::Run, 4));
    records.extend((0..=98).map(|i| sample(20_000 - 200 * i, 6.0 + 6.6 * i as f64 / 98.0)));
    let told = told(&records);
    assert_eq!(
        told.sentences,
        [
            "The last reading was at 14:02:10, 0.4 s before the end: pressure 0.93, other apps had taken 6.6 GB in the last \
             20 s; the micro-batch was 4 of 16.",
            "Ebb held 3.0 GB, its budget was 4.0 GB, and 410 MB were free.",
            "The highest pressure of the last two minutes was 0.93 at 14:02:10, because only 410 MB were free.",
            "At 14:01:52: Shrunk 16 to 4: another app took 2.0 GB in 3 s.",
        ]
    );
    assert_eq!((told.level, told.end_unix_ms), (Level::Critical, END));
    assert_eq!(told.reading_unix_ms, END - 400);
}

#[test]
fn memory_was_not_plenty_where_the_run_had_to_wait() {
    let mut records: Vec<_> = (0..50).map(|i| sample(5_000 - 100 * i, 3.0)).collect();
    records.insert(9, standing(4_100, Action::Pause, 0));
    records.push(standing(90, Action::Run, 4));
    assert_eq!(
        told(&records).sentences[2],
        "The highest pressure of the last two minutes was 0.22, at 14:02:06."
    );
}

#[test]
fn a_calm_end_is_told_as_one() {
    let records: Vec<_> = (0..50).map(|i| sample(5_000 - 100 * i, 3.0)).collect();
    let told = told(&records);
    assert_eq!(
        told.sentences,
        [
            "The last reading was at 14:02:10, 0.1 s before the end: pressure 0.22, other apps used 3.0 GB.",
            "Memory was not short in the last two minutes: the highest pressure was 0.22, at 14:02:06.",
            "The pilot changed nothing in that time.",
        ]
    );
    assert_eq!(told.level, Level::Normal);
}

#[test]
fn a_pressure_that_had_passed_is_not_the_level_of_the_end() {
    let records: Vec<_> = (0..600)
        .map(|i| sample(60_000 - 100 * i, if i < 400 { 12.5 } else { 2.0 }))
        .collect();
    let told = told(&records);
    assert_eq!(told.level, Level::Normal);
    assert!(told.highest_pressure > 0.8, "{told:?}");
}

#[test]
fn only_the_newest_life_is_told() {
    let life = |before| FlightRecord::Life {
        unix_ms: END - before,
        process: 1,
    };
    let records = [
        life(100_000),
        sample(90_000, 12.9),
        decision(89_000, "Paused: other apps need the memory"),
        standing(89_000, Action::Pause, 0),
        life(10_000),
        sample(2_000, 2.0),
    ];
    let told = told(&records);
    assert_eq!(told.sentences.len(), 3, "{told:?}");
    assert!(told.highest_pressure < 0.5, "{told:?}");
}

#[test]
fn waiting_is_called_by_its_name() {
    for (action, words) in [
        (Action::Pause, "; the run was paused."),
        (Action::Suspend, "; the run was parked."),
    ] {
        let told = told(&[standing(300, action, 0), sample(200, 12.0)]);
        assert!(told.sentences[0].ends_with(words), "{told:?}");
    }
}

#[test]
fn the_day_is_said_where_it_is_not_today() {
    let records = [sample(0, 2.0)];
    let check = |day: &str, time: &str| {
        let told = aftermath(&records, 0, &now(day)).expect("there is a reading");
        let first = format!("The last reading was at {time}, 0.0 s before the end");
        assert!(told.sentences[0].starts_with(&first), "{told:?}");
    };
    check("2026-11-20T23:00:00[UTC]", "14:02:11");
    check("2026-11-22T09:00:00[UTC]", "14:02:11 on 20 November");
    check("2026-11-20T23:00:00[Europe/Berlin]", "15:02:11");
}

#[test]
fn without_a_reading_there_is_nothing_to_tell() {
    assert_eq!(aftermath(&[], END, &today()), None);
    assert_eq!(aftermath(&[decision(0, "Paused")], END, &today()), None);
}
