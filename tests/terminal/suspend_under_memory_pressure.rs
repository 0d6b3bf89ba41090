//! If other apps need the memory of the model itself, the run suspends on a checkpoint that was
//! saved in advance, in training and in evaluation. It continues by itself with the same results.

use crate::support::{TestHome, draw_classes, memory_script};
use pressure::{Change, Phase};
use runlog::{CheckpointReason, RunEvent, StopReason};
use std::collections::BTreeMap;
use std::fs;

const TOTAL_BYTES: u64 = 8_000_000_000;
const CALM: u64 = 1_000_000_000;
/// Milliseconds between script lines. The next checkpoint in advance is due after six lines.
const LINE_MS: u64 = 5_000;
/// Largest difference between two losses; other splits of a batch round differently.
const ALLOWED: f64 = 1e-10;

fn trained(others: &[u64], steps: u64, evaluate_every_epochs: u32) -> Vec<RunEvent> {
    let home = TestHome::new();
    let config = format!("evaluate_every_epochs = {evaluate_every_epochs}");
    home.file("config.toml", config);
    draw_classes(&home.path("birds"), &["jay", "owl"], 20);
    let script = memory_script(TOTAL_BYTES, LINE_MS, others.iter().copied());
    home.file("script", script);
    let line = format!(
        "{{birds}} --image-size 16 --steps {steps} --effective-batch 8 --precision f64 \
         --config {{config.toml}} --memory-script {{script}} --memory-script-by decision"
    );
    home.train(&line).expect_code(0).events()
}

/// Indices of the decisions with this change and phase.
fn changes(events: &[RunEvent], wanted: Change, wanted_phase: Phase) -> Vec<usize> {
    let is = |event: &RunEvent| matches!(event, RunEvent::Decision { decision, phase, .. } if decision.change == wanted && *phase == wanted_phase);
    (0..events.len()).filter(|&at| is(&events[at])).collect()
}

/// Indices and steps of the checkpoints that were saved before a possible suspension.
fn saved_in_advance(events: &[RunEvent]) -> Vec<(usize, u64)> {
    let step = |event: &RunEvent| match event {
        RunEvent::Checkpoint {
            step,
            reason: CheckpointReason::Pressure,
            ..
        } => Some(*step),
        _ => None,
    };
    let all = events.iter().enumerate();
    all.filter_map(|(at, event)| Some((at, step(event)?)))
        .collect()
}

/// How long the newest checkpoint took to write, in milliseconds.
fn duration_ms(events: &[RunEvent]) -> f64 {
    let duration = |event: &RunEvent| match event {
        RunEvent::Checkpoint { duration_ms, .. } => Some(*duration_ms),
        _ => None,
    };
    let newest = events.iter().rev().find_map(duration);
    newest.expect("a checkpoint was written")
}

/// Loss of every step and of every evaluation by step. A repeated one counts once, with its last
/// loss.
fn results(events: &[RunEvent]) -> [BTreeMap<u64, f64>; 2] {
    let mut results = [BTreeMap::new(), BTreeMap::new()];
    for event in events {
        match event {
            RunEvent::Step { step, loss, .. } => results[0].insert(*step, *loss),
            RunEvent::Evaluation { step, loss, .. } => results[1].insert(*step, *loss),
            _ => None,
        };
    }
    results
}

#[track_caller]
fn assert_same_results(events: &[RunEvent], calm: &[RunEvent]) {
    let (one, other) = (results(events), results(calm));
    assert!(!one[0].is_empty());
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one.len(), other.len());
        for ((step, a), (other_step, b)) in one.iter().zip(other) {
            assert!(
                step == other_step && (a - b).abs() <= ALLOWED,
                "{step} {other_step}: {a} {b}"
            );
        }
    }
}

#[test]
fn a_run_suspends_on_a_checkpoint_saved_in_advance() {
    let rise = (0..70).map(|line| CALM + 100_000_000 * line);
    let others: Vec<u64> = std::iter::repeat_n(CALM, 20)
        .chain(rise)
        .chain([TOTAL_BYTES; 30])
        .chain([CALM; 2])
        .collect();
    let events = trained(&others, 150, 1000);
    let suspends = changes(&events, Change::Suspend, Phase::Train);
    assert_eq!(suspends.len(), 1, "one rise, one suspension");
    let back = changes(&events, Change::Continue, Phase::Train);
    let back = back.into_iter().find(|at| *at > suspends[0]);
    let back = back.expect("the run continues by itself");
    let saved_steps = saved_in_advance(&events);
    println!(
        "suspended at event {}, saved in advance: {saved_steps:?}",
        suspends[0]
    );
    assert!(
        saved_steps.first().is_some_and(|(at, _)| *at < suspends[0]),
        "before memory was short"
    );
    let steps: Vec<u64> = saved_steps.iter().map(|(_, step)| *step).collect();
    assert!(steps.is_sorted_by(|a, b| a < b), "once a step: {steps:?}");
    // Suspending saves a checkpoint only if the newest one is of an earlier step. If the disk is
    // slow, that newest one is good enough and a few steps are repeated.
    let RunEvent::Decision { step, .. } = &events[suspends[0]] else {
        panic!("{:?}", events[suspends[0]]);
    };
    let before = saved_steps.iter().rev().find(|(at, _)| *at < suspends[0]);
    let is_newest = before.is_some_and(|(_, saved)| saved == step);
    let meanwhile = saved_steps
        .iter()
        .filter(|(at, _)| (suspends[0]..back).contains(at));
    let is_slow = duration_ms(&events[..suspends[0]]) > 100.0;
    assert_eq!(meanwhile.count(), usize::from(!is_newest && !is_slow));
    assert_same_results(&events, &trained(&[CALM], 150, 1000));
}

#[test]
fn an_evaluation_suspends_and_starts_again() {
    let calm = trained(&[CALM], 40, 1);
    let (mut training, mut evaluating) = (0, 0);
    for seed in 0..3u64 {
        // Random single lines leave no memory: some fall into a run, some into an evaluation.
        let line = |line: u64| match (line + 101 * seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 59 {
            0 => TOTAL_BYTES,
            _ => CALM,
        };
        let others: Vec<u64> = (0..150).map(line).collect();
        let events = trained(&others, 40, 1);
        training += changes(&events, Change::Suspend, Phase::Train).len();
        evaluating += changes(&events, Change::Suspend, Phase::Evaluate).len();
        assert_same_results(&events, &calm);
    }
    println!("suspended {training} times in training, {evaluating} times in evaluation");
    assert!(training > 0 && evaluating > 0);
}

/// A run that is stopped while it is suspended ends at the step of its checkpoint. Here saving is
/// slow, so that is an earlier step than the last one. The resumed run has the same results.
#[test]
fn a_run_stopped_while_suspended_resumes_from_its_checkpoint() {
    let home = TestHome::on_disk();
    home.file(
        "book.txt",
        "It rained all day and we stayed in. ".repeat(60),
    );
    home.file("config.toml", "evaluate_every_epochs = 100000");
    // Slow enough that steps are done between the first warning and the suspension.
    let (total_bytes, calm) = (TOTAL_BYTES / 2, 2 * CALM);
    let rise = (0..40).map(|line| calm + 50_000_000 * line);
    let others = std::iter::repeat_n(calm, 10).chain(rise);
    let script = memory_script(total_bytes, 1_000, others.chain([total_bytes]));
    home.file("script", script);
    // Ten million parameters of eight bytes.
    let line = "train {book.txt} --model gpt_mini --tokens 16 --steps 60 --effective-batch 2 --precision f64 --config {config.toml}";
    let script_flags = "--memory-script {script} --memory-script-by decision";
    let mut training = home.start(&format!("{line} {script_flags}"));
    let mut events = training.until(
        |event| matches!(event, RunEvent::Decision { decision, .. } if decision.change == Change::Suspend),
    );
    training.signal("INT");
    let (code, rest) = training.finish();
    let Some(RunEvent::Stopped {
        step,
        reason: StopReason::Requested,
        ..
    }) = rest.last().filter(|_| code == Some(0))
    else {
        panic!("{code:?} {rest:#?}");
    };
    let reached = results(&events)[0].keys().last().copied();
    println!("suspended after step {reached:?}, stopped at step {step}");
    assert!(reached.is_some_and(|reached| reached > *step));
    let run = home.only_run();
    let newest = run
        .checkpoints()
        .expect("the checkpoints can be listed")
        .pop();
    let newest = newest.expect("a checkpoint was saved in advance");
    assert_eq!(newest.step, *step);
    let weights = fs::metadata(newest.path.join("model.safetensors"));
    assert!(weights.is_ok_and(|file| file.len() > 80_000_000));

    let (code, again) = home.start(&format!("resume {}", run.id())).finish();
    assert_eq!(code, Some(0), "{again:#?}");
    assert!(
        matches!(again.first(), Some(RunEvent::Resumed { step: at, .. }) if at == step),
        "{again:#?}"
    );
    assert_eq!(results(&again)[0].keys().next(), Some(&(step + 1)));
    events.extend(again);
    let (code, calm) = home.start(line).finish();
    assert_eq!(code, Some(0), "{calm:#?}");
    assert_same_results(&events, &calm);
}
