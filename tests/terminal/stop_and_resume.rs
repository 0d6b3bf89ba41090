//! Ctrl-C stops the run with a checkpoint, a second Ctrl-C aborts it. Resume continues at that
//! step.

use crate::support::{RunningTraining, TestHome, draw_classes};
use runlog::{CheckpointReason, RunEvent, StopReason};
use std::time::{Duration, Instant};

/// Longest time from the request to a saved checkpoint.
const MAX_STOP: Duration = Duration::from_secs(2);
/// Most times that a run is stopped: other processes may hold one of them up.
const STOPS: usize = 5;
/// If no event is written for this long, about a hundred steps, the training waits for its reader.
const STALLED: Duration = Duration::from_millis(500);

fn is_step(wanted: u64) -> impl Fn(&RunEvent) -> bool {
    move |event| matches!(event, RunEvent::Step { step, .. } if *step == wanted)
}

/// Stops a training by a signal. Returns the step at which it says that it was stopped, and how
/// long it took.
fn stop(mut training: RunningTraining, signal: &str) -> (u64, Duration) {
    let requested = Instant::now();
    training.signal(signal);
    let last = training.until(|event| matches!(event, RunEvent::Stopped { .. }));
    let took = requested.elapsed();
    println!("from request to saved checkpoint: {} ms", took.as_millis());
    assert_eq!(training.finish().0, Some(0));
    let Some(RunEvent::Stopped {
        step,
        reason: StopReason::Requested,
        ..
    }) = last.last()
    else {
        panic!("{:?}", last.last());
    };
    (*step, took)
}

/// Resumes the only run of a home, whose newest checkpoint must be that of `step`.
fn resume(home: &TestHome, step: u64) -> RunningTraining {
    let run = home.only_run();
    let newest = run
        .checkpoints()
        .expect("the checkpoints can be listed")
        .pop();
    assert_eq!(newest.map(|checkpoint| checkpoint.step), Some(step));
    let mut training = home.start(&format!("resume {}", run.id()));
    let again = training.until(is_step(step + 1));
    assert!(
        matches!(&again[0], RunEvent::Resumed { step: at, device_reason, .. }
            if *at == step && !device_reason.is_empty()),
        "{again:#?}"
    );
    training
}

#[test]
fn a_stop_is_saved_within_two_seconds_and_resumes() {
    let home = TestHome::new();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/groceries");
    let mut training = home.start(&format!("train {sample} --steps 500"));
    training.until(is_step(3));
    let (mut step, mut fastest) = stop(training, "INT");
    let mut stops = 1;
    while fastest >= MAX_STOP && stops < STOPS {
        let (next, took) = stop(resume(&home, step), "INT");
        (step, fastest, stops) = (next, fastest.min(took), stops + 1);
    }
    assert!(fastest < MAX_STOP, "{fastest:?}");
    // The system ends the process, and a closed terminal.
    for signal in ["TERM", "HUP"] {
        (step, _) = stop(resume(&home, step), signal);
    }

    let training = resume(&home, step);
    training.signal("INT");
    let (code, rest) = training.finish();
    let saved =
        |event: &RunEvent| matches!(event, RunEvent::Checkpoint { step: at, .. } if *at > step);
    assert!(
        code == Some(0) && rest.iter().any(saved),
        "{code:?} {rest:#?}"
    );
}

#[test]
fn a_second_interrupt_aborts_and_leaves_a_valid_checkpoint() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 4);
    let line = "train {birds} --image-size 16 --steps 100000 --effective-batch 2 --checkpoint-every 50steps";
    let mut training = home.start(line);
    training.until(|event| {
        matches!(
            event,
            RunEvent::Checkpoint {
                reason: CheckpointReason::Periodic,
                ..
            }
        )
    });
    // Without a reader of its stdout the training waits, so the first request stays pending.
    let events = home.only_run().events_path();
    let len = || std::fs::metadata(&events).map_or(0, |events| events.len());
    while !(has_stalled(len) && is_asleep(training.id())) {}
    training.signal("INT");
    while !training.stderr().contains("Press Ctrl-C again to abort") {
        std::thread::yield_now();
    }
    training.signal("INT");
    assert_eq!(training.wait(), Some(1));
    let run = home.only_run();
    let saved = run
        .checkpoints()
        .expect("the checkpoints can be listed")
        .pop();
    let saved = saved.expect("there is a checkpoint").step;
    let mut training = home.start(&format!("resume {}", run.id()));
    let again = training.until(is_step(saved + 1));
    assert!(
        matches!(again[0], RunEvent::Resumed { step, .. } if step == saved),
        "{again:#?}"
    );
    training.signal("KILL");
    training.finish();
}

/// Whether the length stays the same for [`STALLED`].
fn has_stalled(len: impl Fn() -> u64) -> bool {
    let (before, begin) = (len(), Instant::now());
    while begin.elapsed() < STALLED {
        if len() != before {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Whether no thread of a process works or wants to: a training that is merely not given a
/// processor has not stalled. Without `/proc`, true.
fn is_asleep(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name in parentheses.
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('S'))
    })
}
