//! Ctrl-C stops the run with a checkpoint, a second Ctrl-C aborts it. Resume continues at that
//! step.

use crate::support::{TestHome, draw_classes};
use runlog::{CheckpointReason, RunEvent, StopReason};
use std::time::{Duration, Instant};

/// Longest time from the request to a saved checkpoint.
const MAX_STOP: Duration = Duration::from_secs(2);
/// If no event is written for this long, about a hundred steps, the training waits for its reader.
const STALLED: Duration = Duration::from_millis(500);

fn is_step(wanted: u64) -> impl Fn(&RunEvent) -> bool {
    move |event| matches!(event, RunEvent::Step { step, .. } if *step == wanted)
}

#[test]
fn a_stop_is_saved_within_two_seconds_and_resumes() {
    let home = TestHome::new();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/groceries");
    let mut training = home.start(&format!("train {sample} --steps 500"));
    training.until(is_step(3));
    let requested = Instant::now();
    training.signal("INT");
    let last = training.until(|event| matches!(event, RunEvent::Stopped { .. }));
    let took = requested.elapsed();
    println!("from request to saved checkpoint: {} ms", took.as_millis());
    assert!(took < MAX_STOP, "{took:?}");
    assert_eq!(training.finish().0, Some(0));
    let Some(RunEvent::Stopped {
        step,
        reason: StopReason::Requested,
        ..
    }) = last.last()
    else {
        panic!("{:?}", last.last());
    };
    let (step, run) = (*step, home.only_run());
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
    while !has_stalled(|| std::fs::metadata(&events).map_or(0, |events| events.len())) {}
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
