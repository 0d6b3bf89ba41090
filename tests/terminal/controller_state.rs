//! The pilot's knowledge is part of the run: a resumed run asks for its earlier micro-batch from
//! its first piece, and its losses are those of a run that never stopped.

use crate::support::{RunningTraining, TestHome, draw_classes};
use pressure::Phase;
use runlog::{RunEvent, RunFolder};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const STEPS: usize = 40;

/// A machine where nothing happens, so that sizes follow from what is learnt alone.
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

/// Sizes and reasons of the training's decisions.
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

/// A run that was stopped after `steps` steps, and the size that it had come to.
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
        "the first life measures: {sizes:?}"
    );
    let (last, _) = sizes[sizes.len() - 1];
    assert!(last > 2, "{sizes:?}");
    (home.only_run(), last)
}

fn resume(home: &TestHome, run: &RunFolder) -> RunningTraining {
    home.start(&format!("resume {} {SCRIPT}", run.id()))
}

/// Events of a new life up to its first step; then it is killed, so that its checkpoint stays.
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
    assert!(reason.starts_with("as before, "), "{reason}");
    let micro_batches = &steps(&events)[0].2;
    assert_eq!(micro_batches[0], size, "{micro_batches:?}");

    // The same schedule in one go: the losses of the two lives are its losses, to the bit.
    let both = steps(&runlog::read_events(&run.events_path()).expect("they can be read"));
    let line = format!("{} --replay {}", &plan()[6..], run.id());
    let whole = steps(&home.train(&line).expect_code(0).events());
    assert_eq!(both.len(), STEPS);
    assert_eq!(both, whole);
}

fn checkpoint(run: &RunFolder, file: &str) -> PathBuf {
    let newest = run.checkpoints().expect("they can be listed").pop();
    newest.expect("one").path.join(file)
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
    let begins = |warned: &[&str], first: u32| {
        let events = first_step(&home, &run);
        assert_eq!(warnings(&events), warned, "{events:#?}");
        assert_eq!(decided(&events)[0].0, first, "{events:#?}");
    };
    begins(&[], size);

    let config = run.path.join("config.toml");
    let two = fs::read_to_string(&config).expect("it can be read");
    let one = two.replace("threads = 2", "threads = 1");
    assert_ne!(one, two);
    fs::write(&config, one).expect("it can be written");
    begins(&[], 1);
    fs::write(&config, two).expect("it can be written");

    let file = checkpoint(&run, "controller.json");
    let good = fs::read(&file).expect("it was written");
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    fs::write(&file, damaged).expect("it can be written");
    begins(&["controller_state_unusable"], 1);
    fs::remove_file(&file).expect("it is there");
    begins(&["controller_state_unusable"], 1);

    // As a version of Ebb wrote it that knew no such file.
    let path = checkpoint(&run, "state.json");
    let text = fs::read(&path).expect("it can be read");
    let mut state: Value = serde_json::from_slice(&text).expect("it is JSON");
    assert!(
        state
            .as_object_mut()
            .is_some_and(|state| state.remove("controller").is_some())
    );
    fs::write(&path, state.to_string()).expect("it can be written");
    begins(&[], 1);
    fs::write(&path, text).expect("it can be written");
    fs::write(&file, good).expect("it can be written");
    begins(&[], size);
}
