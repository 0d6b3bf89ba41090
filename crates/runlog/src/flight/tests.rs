//! The ring through wraps, torn slots and second lives.

use super::*;
use std::fs;
use tempfile::TempDir;

fn folder() -> (TempDir, RunFolder) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = RunFolder {
        path: folder.path().into(),
    };
    (folder, run)
}

fn ring(run: &RunFolder) -> (FlightRing, Claim) {
    let claim = run.claim().expect("it is free");
    (
        FlightRing::open(run, &claim).expect("it can be made"),
        claim,
    )
}

fn sample(unix_ms: u64) -> FlightRecord {
    FlightRecord::Sample {
        unix_ms,
        sample: MemorySample {
            at_ms: unix_ms,
            total_bytes: 16 << 30,
            available_bytes: 9 << 30,
            own_bytes: 2 << 30,
            ..MemorySample::default()
        },
    }
}

fn times(run: &RunFolder) -> Vec<u64> {
    let records = read_flight(run).expect("it can be read");
    records.iter().map(FlightRecord::unix_ms).collect()
}

fn bytes(run: &RunFolder) -> u64 {
    fs::metadata(run.path.join(RING)).map_or(0, |about| about.len())
}

#[test]
fn what_was_written_is_read_without_a_sync() {
    let (_folder, run) = folder();
    assert_eq!(read_flight(&run).ok(), Some(Vec::new()), "no ring yet");
    let (mut ring, _claim) = ring(&run);
    let written = [
        FlightRecord::Life {
            unix_ms: 1_000,
            process: 7,
        },
        FlightRecord::Standing {
            unix_ms: 1_001,
            step: 12,
            action: Action::Run,
            micro_batch: 4,
            effective_batch: 16,
            budget_bytes: 3 << 30,
        },
        FlightRecord::Decision {
            unix_ms: 1_002,
            sentence: "Shrunk 16 to 4: another app took 6.1 GB in 20 s".into(),
        },
        sample(1_003),
    ];
    for record in &written {
        ring.write(record).expect("it can be written");
    }
    assert_eq!(read_flight(&run).expect("it can be read"), written);
}

#[test]
fn twenty_readings_a_second_last_ten_minutes_and_never_over_5_mb() {
    let (_folder, run) = folder();
    let (mut ring, _claim) = ring(&run);
    // Twelve minutes: 20 readings and one more record a second.
    for second in 0..720 {
        for beat in 0..21 {
            ring.write(&sample(1_000 * second + beat * 1_000 / 21))
                .expect("it can be written");
        }
    }
    assert!(bytes(&run) <= 5 << 20, "{} bytes", bytes(&run));
    let times = times(&run);
    let (first, last) = (times[0], times[times.len() - 1]);
    assert_eq!(last, 719_000 + 20 * 1_000 / 21);
    assert_eq!(first, last - SPAN_MS, "ten minutes, not more");
    assert!(times.is_sorted(), "the oldest comes first after a wrap");
}

#[test]
fn the_longest_reading_fits_and_a_long_sentence_is_cut() {
    let most = u64::from(u32::MAX) * 4096;
    let longest = FlightRecord::Sample {
        unix_ms: 32_503_680_000_000,
        sample: MemorySample {
            at_ms: 604_800_000,
            total_bytes: most,
            available_bytes: most,
            own_bytes: most,
            system_bytes: most,
            device_live_bytes: most,
            device_allocated_bytes: most,
            device_limit_bytes: most,
            swap_used_bytes: most,
            kernel_level: Some(Level::Critical),
            stall_fraction: Some(0.1234),
            compressor_fraction: Some(0.9876),
            disk_free_bytes: Some(most),
            ..MemorySample::default()
        },
    };
    let full = slot(u64::from(u32::MAX), &longest).expect("it fits");
    assert_eq!(whole(&full), Some((u64::from(u32::MAX), longest)));
    for letter in ["x", "\u{1}", "é", "\""] {
        let wordy = FlightRecord::Decision {
            unix_ms: 1,
            sentence: letter.repeat(1_000),
        };
        let cut = slot(3, &wordy).and_then(|slot| whole(&slot));
        let Some((3, FlightRecord::Decision { sentence, .. })) = cut else {
            // Of letters that take six bytes each even a quarter is too much: it is left out.
            assert_eq!(letter, "\u{1}");
            continue;
        };
        assert!(sentence.starts_with(letter) && sentence.ends_with('…'));
    }
}

#[test]
fn torn_slots_are_left_out_wherever_they_are() {
    let (_folder, run) = folder();
    let (mut ring, claim) = ring(&run);
    (0..40).for_each(|at| ring.write(&sample(at)).expect("it can be written"));
    drop((ring, claim));
    let path = run.path.join(RING);
    let good = fs::read(&path).expect("it can be read");
    // A write that stopped in the middle: half of the new record, half of the old one.
    let torn = slot(53, &sample(53)).expect("it fits");
    for cut in [1, 8, 9, 30, 60] {
        let mut bytes = good.clone();
        bytes[13 * SLOT..13 * SLOT + cut].copy_from_slice(&torn[..cut]);
        fs::write(&path, bytes).expect("it can be written");
        let left = times(&run);
        // A slot that only differs in its padding is whole again.
        let lost = usize::from(!left.contains(&13));
        assert_eq!(left.len(), 40 - lost, "cut at {cut}");
        assert!(!left.contains(&53), "cut at {cut}");
    }
    // A torn end, and zeroes where the disk had not got them yet.
    fs::write(&path, &good[..good.len() - 1]).expect("it can be written");
    assert_eq!(times(&run), (0..39).collect::<Vec<_>>());
    let mut bytes = good.clone();
    bytes[..4096].fill(0);
    fs::write(&path, bytes).expect("it can be written");
    assert_eq!(times(&run), (11..40).collect::<Vec<_>>());
    fs::write(&path, vec![b'x'; 12_345_678]).expect("it can be written");
    assert_eq!(times(&run), [0; 0]);
}

#[test]
fn a_new_life_goes_on_after_the_newest_record() {
    let (_folder, run) = folder();
    let (mut first, claim) = ring(&run);
    (0..10).for_each(|at| first.write(&sample(at)).expect("it can be written"));
    drop((first, claim));
    // The newest record was torn by a power cut.
    let path = run.path.join(RING);
    let mut bytes = fs::read(&path).expect("it can be read");
    bytes[9 * SLOT + 50] = 0;
    bytes.extend(vec![b'x'; 6 << 20]);
    fs::write(&path, bytes).expect("it can be written");
    let (mut second, _claim) = ring(&run);
    (100..103).for_each(|at| second.write(&sample(at)).expect("it can be written"));
    assert_eq!(times(&run), [0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102]);
    assert!(bytes_of_ring_are_bounded(&run));
}

fn bytes_of_ring_are_bounded(run: &RunFolder) -> bool {
    bytes(run) <= 5 << 20
}

#[test]
fn a_second_writer_gets_no_claim_and_so_no_ring() {
    let (_folder, run) = folder();
    let (_ring, _claim) = ring(&run);
    let refused = run
        .claim()
        .map(|claim| FlightRing::open(&run, &claim).is_ok());
    let message = refused.expect_err("it is taken").to_string();
    assert!(message.contains("is being trained by process"), "{message}");
}
