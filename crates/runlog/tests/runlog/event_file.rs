//! The event file survives crashes, damage and later versions.

use disk::simulated::{Fault, SimulatedDisk};
use runlog::{
    EventReader, EventWriter, NonFiniteGradient, PromptAnswer, RunEvent, RunFolder, Started,
    StopReason, Tail, read_events,
};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;

fn folder() -> (tempfile::TempDir, RunFolder) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = RunFolder {
        path: folder.path().into(),
    };
    (folder, run)
}

fn step(step: u64, loss: f64) -> RunEvent {
    RunEvent::Step {
        at_ms: step * 1000,
        step,
        epoch: 0,
        loss,
        learning_rate: 0.001,
        gradient_norm: 1.0,
        samples_per_second: 30.0,
        wait_ms: 1.0,
        command_buffer_ms: None,
        micro_batches: vec![8, 8],
        checkpoint_blocks: Vec::new(),
        ledger: Vec::new(),
        metrics: Default::default(),
    }
}

fn write(run: &RunFolder, events: &[RunEvent]) {
    let mut writer = EventWriter::append(run).expect("it can be opened");
    for event in events {
        writer.write(event).expect("it can be written");
    }
}

fn add(run: &RunFolder, bytes: &[u8]) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(run.events_path())
        .expect("it can be opened");
    file.write_all(bytes).expect("it can be written");
}

#[test]
fn events_round_trip() {
    let (_folder, run) = folder();
    let events = [
        RunEvent::Started(Box::new(Started {
            name: "birds\n\"x\"".into(),
            ..Started::default()
        })),
        RunEvent::Baseline {
            at_ms: 2_000,
            name: "word and character n-grams".into(),
            samples: 640,
            seconds: 1.5,
            loss: 0.25,
            metrics: BTreeMap::from([("accuracy".to_owned(), 0.875)]),
        },
        step(1, 2.5),
        RunEvent::Answers {
            at_ms: 1_500,
            step: 1,
            answers: vec![PromptAnswer {
                prompt: "Who are\nyou?".into(),
                answer: "I am \"x\"".into(),
                is_cut: true,
            }],
        },
        step(2, f64::INFINITY),
        RunEvent::Stopped {
            at_ms: 3000,
            step: 2,
            reason: StopReason::Requested,
            message: "Stopped at step 2".into(),
        },
    ];
    write(&run, &events[..2]);
    write(&run, &events[2..]);
    assert_eq!(
        read_events(&run.events_path()).map_err(|e| e.to_string()),
        Ok(events.to_vec())
    );
}

#[test]
fn a_line_that_could_not_be_written_or_removed_does_not_damage_the_next_one() {
    let (folder, run) = folder();
    let disk = SimulatedDisk::new(folder.path());
    let _installed = disk.install();
    let mut writer = EventWriter::append(&run).expect("it can be opened");
    writer.write(&step(1, 2.0)).expect("it can be written");
    // Half of the line is written, and cannot be removed again.
    disk.fail(Fault::ReadOnly, disk.operations().len());
    writer
        .write(&step(2, 1.5))
        .expect_err("the disk is read-only");
    let text = fs::read_to_string(run.events_path()).expect("it was written");
    assert!(!text.ends_with('\n'), "{text}");
    disk.heal();
    writer.write(&step(3, 1.0)).expect("it can be written");
    let events = read_events(&run.events_path()).map_err(|e| e.to_string());
    assert_eq!(events, Ok(vec![step(1, 2.0), step(3, 1.0)]));
}

#[test]
fn a_crash_at_any_byte_loses_at_most_the_last_line() {
    let (_folder, run) = folder();
    write(&run, &[step(1, 2.0), step(2, 1.5), step(3, 1.0)]);
    let whole = fs::read(run.events_path()).expect("it was written");
    for cut in 0..=whole.len() {
        fs::write(run.events_path(), &whole[..cut]).expect("it can be written");
        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        let read = read_events(&run.events_path()).expect("an incomplete line is not damage");
        assert_eq!(read.len(), lines, "cut at {cut}");
        write(&run, &[step(9, 0.5)]);
        let read = read_events(&run.events_path()).expect("the incomplete line was removed");
        assert_eq!(read.len(), lines + 1, "cut at {cut}");
        assert_eq!(read.last(), Some(&step(9, 0.5)));
    }
}

#[test]
fn a_line_that_is_too_long_to_be_an_event_is_skipped() {
    let (_folder, run) = folder();
    write(&run, &[step(1, 2.0)]);
    let mut file = fs::File::options()
        .append(true)
        .open(run.events_path())
        .expect("it was written");
    let spaces = vec![b' '; 1 << 20];
    file.write_all(b"{\"kind\":").expect("it can be written");
    for _ in 0..65 {
        file.write_all(&spaces).expect("it can be written");
    }
    file.write_all(b"\"step\"}\n").expect("it can be written");
    drop(file);
    write(&run, &[step(2, 1.0)]);
    let events = read_events(&run.events_path()).expect("it can be read");
    let [first, RunEvent::Warning { message, .. }, last] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((first, last), (&step(1, 2.0), &step(2, 1.0)));
    assert!(
        message.contains("EOF"),
        "only its beginning was read: {message}"
    );
    let followed = Tail::new(run.events_path()).poll();
    let followed = followed.expect("it can be read");
    let [first, RunEvent::Warning { .. }, last] = &followed[..] else {
        panic!("{followed:?}");
    };
    assert_eq!((first, last), (&step(1, 2.0), &step(2, 1.0)));
}

#[test]
fn an_incomplete_line_longer_than_a_block_is_removed() {
    let (_folder, run) = folder();
    write(&run, &[step(1, 2.0)]);
    add(&run, &vec![b'x'; 200_000]);
    write(&run, &[step(2, 1.0)]);
    let read = read_events(&run.events_path()).map_err(|e| e.to_string());
    assert_eq!(read, Ok(vec![step(1, 2.0), step(2, 1.0)]));
}

#[test]
fn damaged_lines_are_skipped_with_one_warning() {
    for damage in [
        &b"{\"kind\":\"step\",\"at_ms\":5}\n"[..],
        b"{\"kind\":\"st\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
    ] {
        let (_folder, run) = folder();
        write(&run, &[step(1, 2.0)]);
        add(&run, damage);
        write(&run, &[step(2, 1.0)]);
        add(&run, damage);
        write(&run, &[step(3, 0.5)]);
        let read = read_events(&run.events_path()).expect("the file can be read");
        let followed = Tail::new(run.events_path())
            .poll()
            .expect("the file can be read");
        assert_eq!(read, followed);
        let [
            first,
            RunEvent::Warning {
                at_ms,
                code,
                message,
            },
            rest @ ..,
        ] = read.as_slice()
        else {
            panic!("{read:?}");
        };
        assert_eq!(
            (first, rest),
            (&step(1, 2.0), &[step(2, 1.0), step(3, 0.5)][..])
        );
        assert_eq!((*at_ms, code.as_str()), (first.at_ms(), "damaged_event"));
        assert!(
            message.starts_with("Line 2 of events.jsonl is damaged ("),
            "{message}"
        );
    }
}

#[test]
fn unknown_kinds_of_events_are_skipped_and_counted() {
    let (_folder, run) = folder();
    write(&run, &[step(1, 2.0)]);
    add(&run, b"{\"kind\":\"teleported\",\"at_ms\":7}\n\n");
    write(&run, &[step(2, 1.0)]);
    let mut reader = EventReader::open(&run.events_path()).expect("it can be read");
    let events: Vec<RunEvent> = reader
        .by_ref()
        .map(|event| event.expect("no damage"))
        .collect();
    assert_eq!(events, [step(1, 2.0), step(2, 1.0)]);
    assert_eq!(reader.skipped(), 1);
}

#[test]
fn a_skipped_step_without_gradient_counts_is_read() {
    let (_folder, run) = folder();
    let skipped = |gradients: Option<Vec<NonFiniteGradient>>| RunEvent::Skipped {
        at_ms: 1,
        step: 2,
        item: "the gradient of head.weight".into(),
        reason: "not finite".into(),
        gradients,
    };
    let counted = skipped(Some(vec![NonFiniteGradient {
        parameter: "head.weight".into(),
        nan: 3,
        infinite: 1,
    }]));
    write(&run, std::slice::from_ref(&counted));
    add(
        &run,
        b"{\"kind\":\"skipped\",\"at_ms\":1,\"step\":2,\"what\":\"the gradient of head.weight\",\"reason\":\"not finite\"}\n",
    );
    let events = read_events(&run.events_path()).expect("both are events");
    assert_eq!(events, [counted, skipped(None)]);
}

#[test]
fn a_number_that_is_not_finite_is_readable() {
    let (_folder, run) = folder();
    let strange = RunEvent::Evaluation {
        at_ms: 1,
        step: 1,
        epoch: 1,
        samples: 3,
        loss: f64::NAN,
        metrics: BTreeMap::from([("accuracy".into(), f64::NAN)]),
        best: false,
    };
    let mut fast = step(1, 2.0);
    if let RunEvent::Step {
        samples_per_second, ..
    } = &mut fast
    {
        *samples_per_second = f64::INFINITY;
    }
    write(&run, &[strange, fast]);
    let read = read_events(&run.events_path()).expect("both are read");
    assert!(
        matches!(&read[0], RunEvent::Evaluation { metrics, .. } if metrics["accuracy"].is_nan())
    );
    assert!(
        matches!(&read[1], RunEvent::Step { samples_per_second, .. } if samples_per_second.is_nan())
    );
}

#[test]
fn the_time_per_command_buffer_is_written_only_if_it_was_measured() {
    let (_folder, run) = folder();
    let mut timed = step(2, 1.5);
    if let RunEvent::Step {
        command_buffer_ms, ..
    } = &mut timed
    {
        *command_buffer_ms = Some(3.25);
    }
    write(&run, &[step(1, 2.0), timed.clone()]);
    let text = std::fs::read_to_string(run.events_path()).expect("it was written");
    assert_eq!(text.matches("command_buffer_ms").count(), 1, "{text}");
    let read = read_events(&run.events_path()).expect("both are read");
    assert_eq!(read, [step(1, 2.0), timed]);
}

#[test]
fn a_tail_returns_each_complete_line_once() {
    let (_folder, run) = folder();
    let mut tail = Tail::new(run.events_path());
    let mut poll = move || tail.poll().map_err(|e| e.to_string());
    assert_eq!(poll(), Ok(vec![]));
    write(&run, &[step(1, 2.0), step(2, 1.5)]);
    assert_eq!(poll(), Ok(vec![step(1, 2.0), step(2, 1.5)]));
    let line = serde_json::to_vec(&step(3, 1.0)).expect("it is plain data");
    add(&run, &line[..20]);
    assert_eq!(poll(), Ok(vec![]));
    add(&run, &line[20..]);
    assert_eq!(poll(), Ok(vec![]));
    add(&run, b"\n{\"kind\":\"teleported\"}\n");
    assert_eq!(poll(), Ok(vec![step(3, 1.0)]));
    add(&run, b"{\"kind\":\"torn");
    assert_eq!(poll(), Ok(vec![]));
    write(&run, &[step(4, 0.5)]);
    assert_eq!(poll(), Ok(vec![step(4, 0.5)]));
}

#[test]
fn a_tail_starts_over_if_the_file_is_replaced() {
    let (_folder, run) = folder();
    let mut tail = Tail::new(run.events_path());
    write(&run, &[step(1, 2.0), step(2, 1.5)]);
    assert_eq!(tail.poll().map(|events| events.len()).ok(), Some(2));
    fs::remove_file(run.events_path()).expect("it can be removed");
    write(&run, &[step(7, 2.0)]);
    assert_eq!(tail.poll().ok(), Some(vec![step(7, 2.0)]));
}

/// A run of a stranger may contain pipes. Opening one would block forever.
#[cfg(unix)]
#[test]
fn a_pipe_in_a_run_is_not_opened() {
    let (_folder, run) = folder();
    for name in ["events.jsonl", "lock"] {
        let path = run.path.join(name);
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.expect("mkfifo can be started").success());
    }
    assert!(!run.is_alive());
    let refused = run.replay().map(|_| ()).map_err(|error| error.to_string());
    assert!(
        refused
            .as_ref()
            .is_err_and(|why| why.contains("it is not a file")),
        "{refused:?}"
    );
    let mut tail = Tail::new(run.events_path());
    assert!(tail.poll().is_err());
    assert!(EventWriter::append(&run).is_err());
}

/// In memory each value takes many times its bytes in the file.
#[test]
fn a_line_of_millions_of_values_is_damaged() {
    let (_folder, run) = folder();
    write(&run, &[step(1, 2.0)]);
    let numbers = "8,".repeat(4_100_000);
    add(
        &run,
        format!("{{\"kind\":\"step\",\"x\":[{numbers}8]}}\n").as_bytes(),
    );
    write(&run, &[step(2, 1.5)]);
    let events = read_events(&run.events_path()).expect("it can be read");
    assert_eq!(events.len(), 3);
    let RunEvent::Warning { message, .. } = &events[1] else {
        panic!("{:?}", events[1]);
    };
    assert!(
        message.contains("the line has millions of values"),
        "{message}"
    );
}
