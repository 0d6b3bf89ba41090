//! A run that is suspended for too long, or whose system runs out of disk space for swap, stops by
//! itself: with a reason, a checkpoint and exit code 0. It can be resumed.

use crate::support::{TestHome, draw_classes};
use pressure::{Action, Change};
use runlog::{RunEvent, StopReason};
use std::fmt::Write;

const PLAN: &str = "{birds} --image-size 16 --steps 40 --effective-batch 8";

/// A memory script with one line per second: `calm` lines of [`CALM`], then one with `last`.
fn script(calm: u64, last: &str) -> String {
    let mut text = String::new();
    for line in 0..=calm {
        let (at_ms, rest) = (line * 1_000, if line < calm { CALM } else { last });
        writeln!(
            text,
            r#"{{"at_ms":{at_ms},"total_bytes":8000000000,{rest}}}"#
        )
        .expect("writing to a string succeeds");
    }
    text
}

const CALM: &str = r#""others_bytes":1000000000,"disk_free_bytes":50000000000"#;

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 14);
    home
}

/// The bits of the loss of every step.
fn losses(events: &[RunEvent]) -> Vec<u64> {
    let bits = |event: &RunEvent| match event {
        RunEvent::Step { loss, .. } => Some(loss.to_bits()),
        _ => None,
    };
    events.iter().filter_map(bits).collect()
}

/// Trains until the script stops the run for `expected`, then resumes it to its last step. Returns
/// the events up to the stop.
#[track_caller]
fn check_stop_and_resume(
    last: &str,
    config: &str,
    expected: StopReason,
    message_start: &str,
) -> Vec<RunEvent> {
    let home = birds();
    home.file("script", script(30, last));
    home.file("limit.toml", config);
    let line = format!(
        "{PLAN} --config {{limit.toml}} --memory-script {{script}} --memory-script-by decision"
    );
    let events = home.train(&line).expect_code(0).events();
    let Some(RunEvent::Stopped {
        step,
        reason,
        message,
        ..
    }) = events.last()
    else {
        panic!("{:#?}", events.last());
    };
    assert_eq!(*reason, expected);
    let message_start =
        format!("Stopped at step {step} after saving a checkpoint: {message_start}");
    assert!(
        message.starts_with(&message_start),
        "{message}, not {message_start}"
    );
    assert!(
        events
            .iter()
            .any(|event| matches!(event, RunEvent::Decision { decision, .. }
            if (decision.action, decision.change) == (Action::Stop, Change::Stop))),
        "the decision is logged"
    );
    let run = home.only_run();
    let newest = run
        .checkpoints()
        .expect("the checkpoints can be listed")
        .pop();
    assert_eq!(newest.map(|checkpoint| checkpoint.step), Some(*step));
    assert!(*step > 0 && *step < 40, "{step}");

    let (code, again) = home.start(&format!("resume {}", run.id())).finish();
    assert_eq!(code, Some(0), "{again:#?}");
    let mut both = losses(&events);
    both.extend(losses(&again));
    assert_eq!(both.len(), 40);
    events
}

#[test]
fn a_run_suspended_too_long_stops_with_a_checkpoint() {
    let full = r#""others_bytes":8000000000"#;
    let events = check_stop_and_resume(
        full,
        // Without evaluations, the run suspends in the training.
        "max_suspended_minutes = 1\nevaluate_every_epochs = 1000",
        StopReason::Memory,
        "other apps have needed the memory for 60 s",
    );
    let suspended = |event: &RunEvent| matches!(event, RunEvent::Decision { decision, .. } if decision.change == Change::Suspend);
    assert!(events.iter().any(suspended));
}

#[test]
fn a_run_stops_with_a_checkpoint_before_there_is_no_space_for_swap() {
    check_stop_and_resume(
        r#""others_bytes":1000000000,"disk_free_bytes":1900000000"#,
        "micro_batch = 4",
        StopReason::Disk,
        "only 1.8 GB of disk space is left for swap",
    );
}
