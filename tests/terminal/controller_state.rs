//! The state of the memory controller is saved with every checkpoint: a resumed run starts with its
//! last micro-batch size, and its losses are those of an uninterrupted run.

use crate::support::{RunningTraining, TestHome, draw_classes};
use pressure::Phase;
use runlog::{RunEvent, RunFolder};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const STEPS: usize = 40;

/// Images, and a memory script without changes: sizes depend on the controller state only.
fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl", "wren"], 30);
    let calm = r#"{"at_ms":0,"total_bytes":8000000000,"others_bytes":2000000000}"#;
    home.file("script", calm);
    home
}

fn plan() -> String {
    format!("train {{birds}} --image-size 16 --effective-batch 32 --steps {STEPS} {SCRIPT}")
}

const SCRIPT: &str = "--memory-script {script} --memory-script-by decision";

/// Micro-batch sizes and reasons of the training decisions.
fn decided(events: &[RunEvent]) -> Vec<(u32, &str)> {
    events.iter().filter_map(decision).collect()
}

fn decision(event: &RunEvent) -> Option<(u32, &str)> {
    match event {
        RunEvent::Decision {
            phase: Phase::Train,
            decision,
            ..
        } => Some((decision.micro_batch, &decision.reason)),
        _ => None,
    }
}

fn steps(events: &[RunEvent]) -> Vec<(u64, f64, Vec<u32>)> {
    let step = |event: &RunEvent| match event {
        RunEvent::Step {
            step,
            loss,
            micro_batches,
            ..
        } => Some((*step, *loss, micro_batches.clone())),
        _ => None,
    };
    events.iter().filter_map(step).collect()
}

/// A run that was stopped after the step `wanted`, and its last micro-batch size.
fn stopped_after(home: &TestHome, wanted: u64) -> (RunFolder, u32) {
    let mut training = home.start(&plan());
    let mut events =
        training.until(|event| matches!(event, RunEvent::Step { step, .. } if *step == wanted));
    training.signal("INT");
    let (code, rest) = training.finish();
    events.extend(rest);
    assert_eq!(code, Some(0), "{events:#?}");
    let sizes = decided(&events);
    assert!(
        sizes.first().is_some_and(|(size, _)| *size == 1),
        "the run starts with measurements: {sizes:?}"
    );
    let (last, _) = sizes[sizes.len() - 1];
    assert!(last > 2, "{sizes:?}");
    (home.only_run(), last)
}

fn resume(home: &TestHome, run: &RunFolder) -> RunningTraining {
    home.start(&format!("resume {} {SCRIPT}", run.id()))
}

/// Resumes the run and returns its events up to the first step. Then kills it, so that the
/// checkpoint stays the same.
fn first_step(home: &TestHome, run: &RunFolder) -> Vec<RunEvent> {
    let mut training = resume(home, run);
    let events = training.until(|event| matches!(event, RunEvent::Step { .. }));
    training.signal("KILL");
    training.finish();
    events
}

#[test]
fn a_resumed_run_starts_with_its_last_micro_batch_size() {
    let home = birds();
    let (run, size) = stopped_after(&home, 12);
    let (code, events) = resume(&home, &run).finish();
    assert_eq!(code, Some(0), "{events:#?}");
    let (first, reason) = decided(&events)[0];
    assert_eq!(first, size, "{reason}");
    assert!(reason.starts_with("same size as before, "), "{reason}");
    let micro_batches = &steps(&events)[0].2;
    assert_eq!(micro_batches[0], size, "{micro_batches:?}");

    // Without an interruption, the same schedule has bit-identical losses.
    let both = steps(&runlog::read_events(&run.events_path()).expect("the events can be read"));
    let line = format!("{} --replay {}", &plan()[6..], run.id());
    let whole = steps(&home.train(&line).expect_code(0).events());
    assert_eq!(both.len(), STEPS);
    assert_eq!(both, whole);
}

#[test]
fn a_run_resumed_before_the_short_last_batch_of_an_epoch_keeps_its_size() {
    let home = birds();
    // Of the 90 images 72 are trained on: each epoch has batches of 32, 32 and 8.
    let plan = plan().replace(&format!("--steps {STEPS}"), "--steps 11");
    let before = home.train(&plan[6..]).expect_code(0).events();
    let (size, _) = decided(&before)[decided(&before).len() - 1];
    assert!(size > 8, "{before:#?}");
    let run = home.only_run();
    let line = format!("resume {} --steps 17 {SCRIPT}", run.id());
    let (code, events) = home.start(&line).finish();
    assert_eq!(code, Some(0), "{events:#?}");
    let (first, reason) = decided(&events)[0];
    assert_eq!(first, size, "{reason}");
    assert!(reason.starts_with("same size as before, "), "{reason}");
    let steps = steps(&events);
    assert_eq!(steps[0].2.iter().sum::<u32>(), 8, "{steps:?}");
    assert_eq!(steps[1].2[0], size, "{steps:?}");
}

fn checkpoint(run: &RunFolder, file: &str) -> PathBuf {
    let newest = run
        .checkpoints()
        .expect("the checkpoints can be listed")
        .pop();
    newest.expect("there is a checkpoint").path.join(file)
}

fn warnings(events: &[RunEvent]) -> Vec<&str> {
    events.iter().filter_map(warning).collect()
}

fn warning(event: &RunEvent) -> Option<&str> {
    match event {
        RunEvent::Warning { code, .. } => Some(code),
        _ => None,
    }
}

#[test]
fn unusable_controller_state_is_ignored() {
    let home = birds();
    let (run, size) = stopped_after(&home, 6);
    let check_first_size = |expected_warnings: &[&str], first: u32| {
        let events = first_step(&home, &run);
        assert_eq!(warnings(&events), expected_warnings, "{events:#?}");
        assert_eq!(decided(&events)[0].0, first, "{events:#?}");
    };
    check_first_size(&[], size);

    let config = run.path.join("config.toml");
    let two_threads = fs::read_to_string(&config).expect("the file can be read");
    let one_thread = two_threads.replace("threads = 2", "threads = 1");
    assert_ne!(one_thread, two_threads);
    fs::write(&config, one_thread).expect("the file can be written");
    check_first_size(&[], 1);
    fs::write(&config, two_threads).expect("the file can be written");

    let file = checkpoint(&run, "controller.json");
    let good = fs::read(&file).expect("the file was written");
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    fs::write(&file, damaged).expect("the file can be written");
    check_first_size(&["controller_state_unusable"], 1);
    fs::remove_file(&file).expect("the file exists");
    check_first_size(&["controller_state_unusable"], 1);

    // Early versions of Ebb saved no controller state, and no checksum of `state.json`.
    let path = checkpoint(&run, "state.json");
    let text = fs::read(&path).expect("the file can be read");
    let mut state: Value = serde_json::from_slice(&text).expect("valid JSON");
    assert!(
        state.as_object_mut().is_some_and(
            |state| state.remove("controller").is_some() && state.remove("sum").is_some()
        )
    );
    fs::write(&path, state.to_string()).expect("the file can be written");
    check_first_size(&[], 1);
    fs::write(&path, text).expect("the file can be written");
    fs::write(&file, good).expect("the file can be written");
    check_first_size(&[], size);
}
