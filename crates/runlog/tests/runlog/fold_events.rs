//! The fold of events into a run.

use crate::support::demo;
use pressure::{Change, Level};
use runlog::{PromptAnswer, Pull, Run, RunEvent, RunStatus, StopReason, read_events};

fn fold(events: &[RunEvent]) -> Run {
    let mut run = Run::default();
    events.iter().for_each(|event| run.apply(event));
    run
}

fn step_of(event: &RunEvent) -> Option<u64> {
    match event {
        RunEvent::Step { step, .. } => Some(*step),
        _ => None,
    }
}

/// The demo up to and including this step.
fn until(step: u64) -> Vec<RunEvent> {
    let events = demo::events();
    let at = events
        .iter()
        .position(|event| step_of(event) == Some(step))
        .expect("the demo has it");
    events[..=at].to_vec()
}

fn stopped(at_ms: u64, reason: StopReason) -> RunEvent {
    let message = "Stopped at step 257. Checkpoint saved in 0.8 s".to_owned();
    RunEvent::Stopped {
        at_ms,
        step: 257,
        reason,
        message,
    }
}

fn resumed(at_ms: u64, step: u64) -> RunEvent {
    RunEvent::Resumed {
        at_ms,
        unix_ms: 0,
        step,
        process: 1,
        device: "CPU, 2 threads".into(),
        device_reason: String::new(),
        steps: 0,
        epochs: 0,
    }
}

#[test]
fn a_resume_may_change_the_planned_length() {
    let mut run = fold(&until(90));
    run.apply(&resumed(300_000, 90));
    let planned = |run: &Run| run.started().map(|started| (started.steps, started.epochs));
    assert_eq!(planned(&run), Some((480, 30)), "of an early version");
    let longer = RunEvent::Resumed {
        at_ms: 300_000,
        unix_ms: 0,
        step: 90,
        process: 1,
        device: "cpu".into(),
        device_reason: "metal failed while it was checked".into(),
        steps: 640,
        epochs: 40,
    };
    run.apply(&longer);
    assert_eq!(planned(&run), Some((640, 40)));
    let started = run.started().expect("it has started");
    let device = (started.device.as_str(), started.device_reason.as_str());
    assert_eq!(device, ("cpu", "metal failed while it was checked"));
    let detail = &run.status_line().detail;
    assert!(
        detail.starts_with("The run now ends at step 640, after 40 epochs."),
        "{detail}"
    );
    run.apply(&longer);
    assert!(
        !run.status_line().detail.contains("now ends"),
        "it ended there before"
    );
}

#[test]
fn the_recorded_file_folds_like_its_events() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/demo.jsonl");
    let read = fold(&read_events(path.as_ref()).expect("the demo is whole"));
    let made = fold(&demo::events());
    assert_eq!(
        read.window(None, None, 800, 0),
        made.window(None, None, 800, 0)
    );
}

#[test]
fn the_figures_are_those_of_the_latest_events() {
    let run = fold(&demo::events());
    let figures = run.figures();
    assert_eq!(run.status(), RunStatus::Training);
    assert_eq!((figures.step, figures.epoch), (257, 17));
    assert_eq!(
        (figures.micro_batch, figures.micro_batches),
        (Some(8), Some(8))
    );
    assert_eq!((figures.changes, figures.skipped), (7, 1));
    assert_eq!(
        (figures.level, figures.level_since_ms),
        (Level::Warning, 534_000)
    );
    assert_eq!(figures.best_accuracy, Some(0.8889));
    let speed = figures.samples_per_second.expect("it trains");
    assert!((24.0..28.0).contains(&speed), "{speed}");
    let left = figures.seconds_left.expect("it trains");
    assert!((500.0..640.0).contains(&left), "{left}");
}

#[test]
fn the_status_line_has_a_message_and_a_detail() {
    let line = fold(&demo::events()).status_line().clone();
    assert_eq!(
        line.message,
        "Micro-batch reduced from 16 to 8: another app took 6.1 GB in 20 s"
    );
    let detail = "The training is unchanged: 64 samples per step, now in 8 micro-batches of 8. The micro-batch grows again when memory is free.";
    assert_eq!(line.detail, detail);
    let line = fold(&until(90)).status_line().clone();
    assert!(
        line.detail
            .contains("now in 6 micro-batches of at most 11."),
        "{}",
        line.detail
    );
}

#[test]
fn marks_and_spans_have_times_and_reasons() {
    let run = fold(&demo::events());
    let shrunk: Vec<_> = run
        .marks()
        .iter()
        .filter(|mark| mark.change == Change::Shrink)
        .collect();
    assert_eq!(shrunk[0].short, "Micro-batch reduced from 16 to 11");
    assert_eq!(shrunk[0].reason, "another app took 2.9 GB in 18 s");
    let spans = run.window(None, None, 800, 0).header.spans;
    let stretches: Vec<_> = spans
        .iter()
        .map(|span| (span.from_ms / 1000, span.to_ms / 1000, span.level))
        .collect();
    assert_eq!(
        stretches,
        [(187, 274, Level::Warning), (534, 583, Level::Warning)]
    );
}

#[test]
fn the_budget_line_is_stacked_on_the_memory_of_others() {
    let pull = fold(&demo::events()).window(None, None, 800, 0);
    let part = |name: &str| pull.array(name).to_vec();
    let (system, others, state, activations, line) = (
        part("memory.system"),
        part("memory.others"),
        part("memory.state"),
        part("memory.activations"),
        part("memory.budget"),
    );
    for i in 0..system.len() {
        assert!(
            system[i] + others[i] + state[i] + activations[i] < line[i] * 1.001,
            "{i}"
        );
        assert!(
            (line[i] / 1073741824.0 - 21.6).abs() < 0.2,
            "{i}: {}",
            line[i]
        );
    }
}

#[test]
fn resuming_drops_later_steps_of_the_previous_life() {
    let mut events = demo::events();
    events.push(resumed(600_000, 128));
    let run = fold(&events);
    assert_eq!(run.figures().step, 128);
    assert_eq!(run.evaluations().len(), 8);
    assert!(
        run.checkpoints()
            .iter()
            .all(|checkpoint| checkpoint.step <= 128)
    );
    assert_eq!(run.status(), RunStatus::Training);
    // The series is that of the step, including the smoothing.
    let earlier = fold(&until(128)).window(None, Some(600_000), 2000, 0);
    let resumed = run.window(None, Some(600_000), 2000, 0);
    for name in ["loss.at", "loss.raw", "loss.smoothed", "loss.learning_rate"] {
        assert_eq!(resumed.array(name), earlier.array(name), "{name}");
    }
    // Memory samples are kept, since the memory was really used.
    assert!(resumed.array("memory.at").len() > earlier.array("memory.at").len());
}

#[test]
fn the_learning_rate_is_a_series() {
    let events = demo::events();
    let rates = events.iter().filter_map(|event| match event {
        RunEvent::Step { learning_rate, .. } => Some(f64::from(*learning_rate as f32)),
        _ => None,
    });
    let rates: Vec<f64> = rates.collect();
    let pull = fold(&events).window(None, None, 16_384, 0);
    assert!(rates.iter().any(|rate| *rate != rates[0]));
    assert_eq!(pull.array("loss.learning_rate"), rates);
}

#[test]
fn the_time_per_command_buffer_is_a_series_of_runs_that_have_it() {
    let mut events = demo::events();
    let name = "loss.command_buffer_ms";
    let pull = fold(&events).window(None, None, 16_384, 0);
    let has_array = |pull: &Pull| pull.header.arrays.iter().any(|array| array.name == name);
    assert!(!has_array(&pull), "the demo was trained on a CPU");
    // The run began on a CPU and was resumed on a GPU.
    for event in &mut events {
        if let RunEvent::Step {
            step,
            command_buffer_ms,
            ..
        } = event
            && *step > 100
        {
            *command_buffer_ms = Some(2.5);
        }
    }
    let pull = fold(&events).window(None, None, 16_384, 0);
    assert!(has_array(&pull));
    let values = pull.array(name);
    assert_eq!(values.len(), pull.array("loss.at").len());
    for (step, value) in pull.array("loss.step").iter().zip(values) {
        assert_eq!(value.is_nan(), *step <= 100.0, "step {step}");
        assert!(value.is_nan() || *value == 2.5);
    }
}

#[test]
fn a_resumed_run_continues_the_smoothed_loss() {
    let uninterrupted = fold(&until(160));
    let mut events = until(150);
    events.push(resumed(300_000, 128));
    events.extend(
        until(160)
            .into_iter()
            .skip(until(128).len())
            .filter(|event| step_of(event).is_some()),
    );
    let resumed = fold(&events);
    let (a, b) = (
        uninterrupted.figures().smoothed_loss,
        resumed.figures().smoothed_loss,
    );
    assert!(
        a.zip(b).is_some_and(|(a, b)| (a - b).abs() < 1e-6),
        "{a:?} {b:?}"
    );
}

#[test]
fn resuming_removes_points_after_the_checkpoints_clock() {
    let mut events = demo::events();
    events.push(resumed(300_000, 128));
    let run = fold(&events);
    assert_eq!(run.now_ms(), 300_000);
    let pull = run.window(None, None, 800, 0);
    for name in ["memory.at", "micro.at", "loss.at", "evaluation.at"] {
        assert!(pull.array(name).iter().all(|at| *at <= 300_000.0), "{name}");
    }
    assert!(pull.header.marks.iter().all(|mark| mark.at_ms <= 300_000));
}

#[test]
fn a_run_without_memory_events_or_decisions_is_folded() {
    let steps: Vec<_> = demo::events()
        .into_iter()
        .filter(|event| step_of(event).is_some())
        .collect();
    let run = fold(&steps);
    assert_eq!(run.figures().step, 257);
    assert_eq!(run.figures().own_bytes, None);
    let pull = run.window(None, None, 400, 0);
    assert!(pull.array("memory.at").is_empty());
    assert!(!pull.array("loss.smoothed").is_empty());
    assert!(
        Run::default()
            .window(None, None, 400, 0)
            .array("loss.at")
            .is_empty()
    );
}

#[test]
fn a_nan_loss_leaves_a_gap() {
    let mut events = until(20);
    for event in &mut events {
        if let RunEvent::Step { step: 10, loss, .. } = event {
            *loss = f64::NAN;
        }
    }
    let run = fold(&events);
    let pull = run.window(None, None, 4000, 0);
    let gaps = pull.array("loss.raw").iter().filter(|v| v.is_nan()).count();
    assert_eq!(gaps, 1);
    assert!(pull.array("loss.smoothed").iter().all(|v| v.is_finite()));
}

#[test]
fn every_end_has_a_status_and_a_way_to_resume() {
    let check = |event: Option<RunEvent>, status: RunStatus, detail: &str| {
        let mut run = fold(&demo::events());
        match &event {
            Some(event) => run.apply(event),
            None => {
                run.mark_process_exited();
            }
        }
        assert_eq!(run.status(), status);
        assert_eq!(run.status_line().detail, detail);
        assert_eq!(run.figures().seconds_left, None);
        let version = run.version();
        run.mark_process_exited();
        assert_eq!(
            (run.status(), run.version()),
            (status, version),
            "an ended run does not change"
        );
    };
    check(
        Some(stopped(584_000, StopReason::Requested)),
        RunStatus::Stopped,
        "Choose Resume to continue at step 257.",
    );
    check(
        Some(stopped(584_000, StopReason::Finished)),
        RunStatus::Finished,
        "Best held-out accuracy: 88.9 % at step 208.",
    );
    let failed = RunEvent::Failed {
        at_ms: 584_000,
        step: 257,
        code: "diverged".into(),
        message: "The loss is not a number.".into(),
    };
    check(
        Some(failed),
        RunStatus::Failed,
        "Choose Resume to continue from the checkpoint at step 237; 20 steps are repeated.",
    );
    check(
        None,
        RunStatus::EndedEarly,
        "Choose Resume to continue from the checkpoint at step 237; 20 steps are repeated.",
    );
}

#[test]
fn a_waiting_run_is_paused_and_has_no_speed() {
    let mut events = until(100);
    let mut decision = events
        .iter()
        .rfind(|event| matches!(event, RunEvent::Decision { .. }))
        .cloned()
        .expect("the demo has decisions");
    if let RunEvent::Decision {
        at_ms,
        decision,
        message,
        ..
    } = &mut decision
    {
        *at_ms = 240_000;
        decision.action = pressure::Action::Pause;
        decision.change = Change::Pause;
        decision.micro_batch = 0;
        *message = "Paused: other apps need the memory".into();
    }
    events.push(decision.clone());
    let run = fold(&events);
    assert_eq!(run.status(), RunStatus::Paused);
    assert_eq!(run.figures().samples_per_second, None);
    assert_eq!(run.figures().micro_batch, None);
    assert_eq!(
        run.window(None, None, 400, 0).array("micro.value").last(),
        Some(&0.0)
    );
    if let RunEvent::Decision {
        at_ms, decision, ..
    } = &mut decision
    {
        *at_ms = 250_000;
        decision.action = pressure::Action::Run;
        decision.change = Change::Continue;
        decision.micro_batch = 4;
    }
    events.push(decision);
    assert_eq!(fold(&events).status(), RunStatus::Training);
}

#[test]
fn a_changed_memory_limit_is_a_change_that_a_resumed_run_forgets() {
    let mut run = fold(&demo::events()[..20]);
    let (marks, changes) = (run.marks().len(), run.figures().changes);
    assert_eq!(run.changed_limits(), None);
    run.apply(&RunEvent::MemoryLimits {
        at_ms: 250_000,
        step: 9,
        memory_cap_bytes: Some(4 << 30),
        max_system_fraction: 0.8,
        message: "Memory cap set to 4.0 GB".into(),
    });
    let limits = run.changed_limits().expect("they were changed");
    assert_eq!(limits.memory_cap_bytes, Some(4 << 30));
    assert_eq!(run.figures().changes, changes + 1);
    let mark = &run.marks()[marks];
    assert_eq!(mark.short, "Memory cap set to 4.0 GB");
    assert_eq!((mark.from, mark.reason.as_str()), (mark.to, "by you"));
    run.apply(&RunEvent::Resumed {
        at_ms: 260_000,
        unix_ms: 0,
        process: 1,
        step: 9,
        device: "CPU".into(),
        device_reason: String::new(),
        steps: 0,
        epochs: 0,
    });
    assert_eq!(run.changed_limits(), None);
}

#[test]
fn a_run_is_compared_with_its_baseline() {
    let events = demo::events();
    let mut run = fold(&events[..1]);
    assert_eq!((run.baseline(), run.compare_with_baseline()), (None, None));
    run.apply(&RunEvent::Baseline {
        at_ms: 2_000,
        name: "word and character n-grams".into(),
        samples: 100,
        seconds: 1.5,
        loss: 0.25,
        metrics: [("accuracy".to_owned(), 0.875)].into(),
    });
    let message = &run.status_line().message;
    assert!(
        message.starts_with("Baseline (word and character n-grams): 87.5 % in 1.5 s"),
        "{message}"
    );
    assert_eq!(run.compare_with_baseline(), None, "nothing was evaluated");
    let evaluation = |accuracy: f64| RunEvent::Evaluation {
        at_ms: 3_000,
        step: 1,
        epoch: 1,
        samples: 8,
        loss: 0.5,
        metrics: [("accuracy".to_owned(), accuracy)].into(),
        best: true,
    };
    for (accuracy, beginning) in [
        (0.875, "Not better than the baseline"),
        (0.9, "Better than the baseline"),
    ] {
        run.apply(&evaluation(accuracy));
        let text = run.compare_with_baseline().expect("both are known");
        assert!(text.starts_with(beginning), "{text}");
    }
    run.apply(&RunEvent::Resumed {
        at_ms: 2_500,
        unix_ms: 0,
        process: 1,
        step: 0,
        device: "CPU".into(),
        device_reason: String::new(),
        steps: 0,
        epochs: 0,
    });
    assert!(run.baseline().is_some(), "a resumed run keeps its baseline");
}

#[test]
fn a_second_start_resets_the_fold() {
    let twice: Vec<_> = demo::events().into_iter().chain(demo::events()).collect();
    let (once, twice) = (fold(&demo::events()), fold(&twice));
    assert_eq!(once.figures(), twice.figures());
    assert_eq!(once.marks(), twice.marks());
    assert!(twice.version() > once.version());
}

#[test]
fn a_pull_without_changes_is_empty() {
    let run = fold(&demo::events());
    let pull = run.window(None, None, 800, run.version());
    assert!(pull.header.unchanged);
    assert!(pull.arrays.is_empty() && pull.header.started.is_none());
    assert!(
        !run.window(None, None, 800, run.version() - 1)
            .header
            .unchanged
    );
}

#[test]
fn an_encoded_pull_is_decoded_as_documented() {
    let pull = fold(&demo::events()).window(Some(60_000), Some(300_000), 333, 0);
    let bytes = pull.encode();
    let header_len = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
    let header: runlog::PullHeader =
        serde_json::from_slice(&bytes[4..4 + header_len]).expect("it is JSON");
    assert_eq!(header, pull.header);
    let begin = (4 + header_len).div_ceil(8) * 8;
    assert!(bytes[4 + header_len..begin].iter().all(|byte| *byte == 0));
    let floats: Vec<f64> = bytes[begin..]
        .chunks_exact(8)
        .map(|eight| f64::from_le_bytes(eight.try_into().expect("eight bytes")))
        .collect();
    assert_eq!(floats, pull.arrays);
    for array in &header.arrays {
        assert!(
            array.len <= 2 * 333,
            "{} has {} points",
            array.name,
            array.len
        );
        assert!((array.offset + array.len) as usize <= floats.len());
    }
}

#[test]
fn a_run_is_summarized_in_a_line() {
    let mut run = fold(&demo::events());
    assert_eq!(
        run.summary_line(),
        "Training at step 257 of 480, accuracy 88.9 %, 9:43"
    );
    run.apply(&stopped(584_000, StopReason::Requested));
    assert_eq!(
        run.summary_line(),
        "Stopped at step 257 of 480, accuracy 88.9 %, 9:44"
    );
    assert_eq!(Run::default().summary_line(), "Starting at step 0, 0:00");
    assert_eq!(run.sparkline(40).len(), 40);
    assert!(run.sparkline(40).first() > run.sparkline(40).last());
}

#[test]
fn a_stress_test_is_marked_until_it_gives_the_memory_back() {
    let mut run = fold(&demo::events());
    let now_ms = run.now_ms();
    let mut reported = |at_ms: u64, bytes: u64, seconds: u64| {
        run.apply(&RunEvent::StressTest {
            at_ms,
            step: 257,
            bytes,
            seconds,
        });
        let spans = run.window(None, None, 800, 0).header.stress_tests;
        spans
            .iter()
            .map(|span| (span.from_ms, span.to_ms, span.bytes))
            .collect::<Vec<_>>()
    };
    // It holds the memory now: the planned end is in the future.
    let begun = now_ms - 3_000;
    assert_eq!(reported(begun, 4, 20), [(begun, now_ms, 4)]);
    let ended = now_ms - 1_000;
    assert_eq!(reported(ended, 0, 0), [(begun, ended, 4)]);
    // The end of a test that nobody looked at is the planned one.
    let first = (begun, ended, 4);
    assert_eq!(reported(now_ms, 5, 20), [first, (now_ms, now_ms, 5)]);
    let late = now_ms + 90_000;
    assert_eq!(
        reported(late, 6, 20),
        [first, (now_ms, now_ms + 20_000, 5), (late, late, 6)]
    );
}

/// Evaluations and answers of a run with the step as its loss, up to `steps`.
fn answering_run(steps: u64) -> Run {
    let mut run = Run::default();
    run.apply(&RunEvent::Started(Box::default()));
    for step in 1..=steps {
        run.apply(&RunEvent::Evaluation {
            at_ms: step,
            step,
            epoch: step,
            samples: 1,
            loss: (step as f64 - 7.0).abs(),
            metrics: Default::default(),
            best: step <= 7,
        });
        run.apply(&RunEvent::Answers {
            at_ms: step,
            step,
            answers: vec![PromptAnswer {
                prompt: "Why?".to_owned(),
                answer: format!("Because of {step}."),
                is_cut: false,
            }],
        });
    }
    run
}

fn answered_steps(run: &Run) -> Vec<u64> {
    run.answers().iter().map(|record| record.step).collect()
}

#[test]
fn a_resumed_run_forgets_the_answers_of_later_steps() {
    let mut run = answering_run(9);
    assert_eq!(answered_steps(&run), (1..=9).collect::<Vec<_>>());
    assert_eq!(run.best_answers().map(|best| best.step), Some(7));
    run.apply(&RunEvent::Resumed {
        at_ms: 10,
        unix_ms: 0,
        step: 5,
        process: 1,
        device: "cpu".into(),
        device_reason: String::new(),
        steps: 0,
        epochs: 0,
    });
    assert_eq!(answered_steps(&run), (1..=5).collect::<Vec<_>>());
    assert_eq!(run.best_answers().map(|best| best.step), Some(5));
}

#[test]
fn of_very_many_answers_the_first_the_best_and_the_last_stay() {
    let run = answering_run(5_000);
    let steps = answered_steps(&run);
    assert!(steps.len() <= 200, "{}", steps.len());
    assert_eq!((steps[0], steps.last()), (1, Some(&5_000)));
    assert!(steps.contains(&7), "{steps:?}");
    assert!(steps.is_sorted());
}
