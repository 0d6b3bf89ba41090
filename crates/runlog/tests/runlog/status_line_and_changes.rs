//! The status line of a run that trains, and its list of changes.

use crate::support::demo;
use pressure::{Action, Change, Component, Decision, Phase};
use runlog::{Run, RunEvent, StepProgress};

fn fold(events: &[RunEvent]) -> Run {
    let mut run = Run::default();
    events.iter().for_each(|event| run.apply(event));
    run
}

/// A run of the demo's first steps, with a micro-batch of 8.
fn training() -> Run {
    let mut events = demo::events();
    events.retain(|event| event.at_ms() < 20_000);
    fold(&events)
}

fn decision(at_ms: u64, change: Change, from: u32, to: u32, cause: Component) -> RunEvent {
    let reason = "another app took 2.6 GB in 3 s";
    RunEvent::Decision {
        at_ms,
        step: 5,
        phase: Phase::Train,
        previous_micro_batch: from,
        micro_batches: 8,
        decision: Decision {
            action: if to == 0 { Action::Pause } else { Action::Run },
            micro_batch: to,
            change,
            cause,
            reason: reason.into(),
            ..Decision::default()
        },
        message: format!("{change:?}: {reason}"),
    }
}

fn status(run: &Run) -> (String, Option<String>) {
    let header = run.window(None, None, 800, 0).header;
    let last = header.last_decision.map(|line| line.message);
    (header.status_line.message, last)
}

#[test]
fn a_short_pause_and_its_end_are_one_change() {
    let mut run = training();
    let before = run.marks().len();
    run.apply(&decision(21_000, Change::Pause, 8, 0, Component::Headroom));
    run.apply(&decision(
        21_100,
        Change::Continue,
        0,
        1,
        Component::Headroom,
    ));
    assert_eq!(run.marks().len(), before + 1);
    let mark = run.marks().last().expect("there are changes");
    assert_eq!((mark.change, mark.from, mark.to), (Change::Shrink, 8, 1));
    assert_eq!(
        (mark.short.as_str(), mark.at_ms),
        ("Micro-batch reduced from 8 to 1", 21_000)
    );
    let text = "Micro-batch reduced from 8 to 1: another app took 2.6 GB in 3 s";
    assert_eq!(status(&run).0, text);
    assert_eq!(run.figures().changes as usize, run.marks().len());
}

#[test]
fn the_size_of_an_evaluation_is_not_shown_as_that_of_training() {
    let mut run = training();
    let before = run.marks().len();
    for (at_ms, change, to) in [(21_000, Change::Pause, 0), (21_100, Change::Continue, 64)] {
        let mut event = decision(at_ms, change, 8, to, Component::Headroom);
        if let RunEvent::Decision { phase, .. } = &mut event {
            *phase = Phase::Evaluate;
        }
        run.apply(&event);
    }
    let marks = &run.marks()[before..];
    let sizes: Vec<_> = marks.iter().flat_map(|mark| [mark.from, mark.to]).collect();
    assert!(!sizes.contains(&64), "{marks:?}");
    let texts = marks.iter().map(|mark| mark.short.as_str());
    assert_eq!(texts.collect::<Vec<_>>(), ["Paused for 0.1 s"]);
    let size = run.figures().micro_batch;
    assert_eq!(size, Some(8), "training continues with its own size");
}

/// A decision of an evaluation while training uses micro-batches of 8.
fn evaluation_decision(at_ms: u64, change: Change, to: u32) -> RunEvent {
    let mut event = decision(at_ms, change, 8, to, Component::Headroom);
    if let RunEvent::Decision { phase, .. } = &mut event {
        *phase = Phase::Evaluate;
    }
    event
}

#[test]
fn a_smaller_micro_batch_of_an_evaluation_is_a_change_of_its_own() {
    let mut run = training();
    let before = run.marks().len();
    for (at_ms, change, to) in [
        (21_000, Change::Start, 64),
        (21_100, Change::Shrink, 32),
        (21_200, Change::Grow, 64),
    ] {
        run.apply(&evaluation_decision(at_ms, change, to));
    }
    let [mark] = &run.marks()[before..] else {
        panic!("{:?}", &run.marks()[before..]);
    };
    assert_eq!((mark.from, mark.to), (8, 8), "training keeps its size");
    assert_eq!(mark.short, "Evaluating with 32");
    assert_eq!(run.figures().micro_batch, Some(8));
    assert_eq!(status(&run).0, "Shrink: another app took 2.6 GB in 3 s");
    assert_eq!(
        run.window(None, None, 800, 0).header.status_line.detail,
        "The result of the evaluation stays the same. The training keeps its own micro-batch size."
    );
}

#[test]
fn a_running_evaluation_reports_the_size_of_its_micro_batches() {
    let mut run = training();
    run.apply(&evaluation_decision(19_000, Change::Start, 64));
    run.show_progress(StepProgress {
        phase: Phase::Evaluate,
        samples_done: 128,
        samples: 243,
        micro_batch: 3,
        micro_batches: 4,
    });
    run.advance(40_000);
    let line = run.window(None, None, 800, 0).header.status_line;
    assert_eq!(line.message, "Evaluating on 243 held-out samples");
    assert!(
        line.detail
            .starts_with("128 samples have been evaluated, in micro-batches of at most 64."),
        "{}",
        line.detail
    );
}

#[test]
fn a_long_pause_and_its_end_are_two_changes() {
    let mut run = training();
    let before = run.marks().len();
    run.apply(&decision(21_000, Change::Pause, 8, 0, Component::Headroom));
    run.apply(&decision(
        40_000,
        Change::Continue,
        0,
        8,
        Component::Headroom,
    ));
    assert_eq!(run.marks().len(), before + 2);
    let mut run = training();
    run.apply(&decision(21_000, Change::Pause, 8, 0, Component::User));
    assert!(
        status(&run).0.starts_with("Paused by you at step "),
        "{:?}",
        status(&run)
    );
    run.apply(&decision(22_500, Change::Continue, 0, 8, Component::User));
    let mark = run.marks().last().expect("there are changes");
    assert_eq!(mark.short, "Paused for 1.5 s");
}

#[test]
fn a_decision_is_the_headline_for_ten_seconds() {
    let mut run = training();
    run.apply(&decision(21_000, Change::Shrink, 8, 4, Component::Headroom));
    run.advance(30_900);
    assert_eq!(
        status(&run),
        ("Shrink: another app took 2.6 GB in 3 s".into(), None)
    );
    run.advance(31_000);
    let (now, last) = status(&run);
    assert!(
        now.starts_with("Training: ") && now.ends_with(" left"),
        "{now}"
    );
    assert_eq!(
        last.as_deref(),
        Some("Shrink: another app took 2.6 GB in 3 s")
    );
    let header = run.window(None, None, 800, 0).header;
    assert_eq!(
        header.status_line.detail,
        "64 samples per step, in 16 micro-batches of 4. The micro-batch grows again when memory is free."
    );
}

#[test]
fn at_an_elevated_level_the_line_names_what_others_use() {
    let run = fold(&demo::events());
    let mut later = run.clone();
    later.advance(run.now_ms() + 60_000);
    assert_eq!(
        status(&later).0,
        "Training with a micro-batch of 8: other apps use 13.6 GB"
    );
    assert_eq!(later.status_line(), run.status_line(), "the decision stays");
}

#[test]
fn a_resumption_is_listed_with_its_step() {
    let mut run = fold(&demo::events());
    run.apply(&RunEvent::Resumed {
        at_ms: 300_000,
        unix_ms: 0,
        step: 128,
        process: 1,
        device: "CPU".into(),
        device_reason: String::new(),
        steps: 0,
        epochs: 0,
    });
    let mark = run.marks().last().expect("there are changes");
    assert_eq!((mark.short.as_str(), mark.step), ("Resumed", 128));
    assert_eq!(run.figures().changes as usize, run.marks().len());
}

#[test]
fn an_estimate_stands_beside_the_highest_footprint() {
    let run = fold(&demo::events());
    let estimated = run.started().map(|started| started.estimated_peak_bytes);
    assert!(estimated > Some(6 << 30), "{estimated:?}");
    let measured = run.figures().peak_own_bytes.expect("it was measured");
    assert!((6 << 30..7 << 30).contains(&measured), "{measured}");
}

#[test]
fn a_smoother_loss_covers_more_steps() {
    let run = fold(&demo::events());
    let roughness = |smoothed_steps| {
        let query = runlog::Query {
            columns: 2000,
            smoothed_steps: Some(smoothed_steps),
            ..runlog::Query::default()
        };
        let pull = run.pull(query);
        let values = pull.array("loss.smoothed").to_vec();
        values
            .windows(2)
            .map(|two| (two[1] - two[0]).abs())
            .sum::<f64>()
    };
    let [raw, usual, smooth] = [1.0, 10.0, 60.0].map(roughness);
    assert!(
        raw > 2.0 * usual && usual > smooth,
        "{raw} {usual} {smooth}"
    );
}

#[test]
fn the_status_line_names_the_reason_for_a_rest() {
    let mut run = training();
    let warning = |at_ms, code: &str, message: &str| RunEvent::Warning {
        at_ms,
        code: code.into(),
        message: message.into(),
    };
    let detail = |run: &Run| run.window(None, None, 800, 0).header.status_line.detail;
    let reason = "the machine runs on its battery: training rests 50 % of the time";
    run.apply(&warning(40_000, runlog::RESTS, reason));
    let shown = "The machine runs on its battery: training rests 50 % of the time.";
    assert_eq!(detail(&run), shown);
    run.apply(&warning(41_000, "disk", "the disk is nearly full"));
    assert_eq!(detail(&run), shown, "another warning changes nothing");
    let ended = "training runs at full speed again";
    run.apply(&warning(60_000, runlog::FULL_SPEED, ended));
    assert!(
        detail(&run).contains("samples per step"),
        "{}",
        detail(&run)
    );
}
