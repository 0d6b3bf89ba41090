//! Other apps take and return memory during a run: the micro-batch size follows, and the
//! losses stay the same. `EBB_PRESSURE_STEPS` sets the number of steps.

use crate::random_kills::setting;
use crate::support::{TestHome, draw_classes, memory_script};
use pressure::{Change, Level, Phase};
use runlog::RunEvent;
use std::collections::{BTreeMap, BTreeSet};

const GB: f64 = 1e9;
const TOTAL_BYTES: u64 = 4_000_000_000;

/// Steps of a run: in about half of them, the memory of other apps does not change any more.
fn step_count() -> u64 {
    setting("EBB_PRESSURE_STEPS", 60)
}

/// Milliseconds between script lines. Calm periods are measured on this clock.
const LINE_MS: u64 = 250;

/// Memory of other apps in GB, one line per decision: low, rising above the critical level, low
/// again.
fn wave() -> Vec<f64> {
    let calm = std::iter::repeat_n(1.0, 20);
    let rise = (0..32).map(|line| 1.0 + 2.8 * f64::from(line) / 31.0);
    let high = std::iter::repeat_n(3.8, 12);
    let fall = (0..8).map(|line| 3.8 - 2.8 * f64::from(line) / 7.0);
    calm.chain(rise)
        .chain(high)
        .chain(fall)
        .chain([1.0; 2])
        .collect()
}

/// Events of steps of 32 samples under a memory script.
fn trained(others: &[f64], options: &str) -> Vec<RunEvent> {
    let home = TestHome::new();
    // Enough images for the wave to fall into an epoch, not into the evaluation after it.
    draw_classes(&home.path("birds"), &["jay", "owl", "wren"], 120);
    let others = others.iter().map(|gigabytes| (gigabytes * GB) as u64);
    home.file("script", memory_script(TOTAL_BYTES, LINE_MS, others));
    let line = format!(
        "{{birds}} --image-size 16 --steps {} --effective-batch 32 {options} \
         --memory-script {{script}} --memory-script-by decision",
        step_count()
    );
    home.train(&line).expect_code(0).events()
}

/// Index of the first matching event from `after` on.
#[track_caller]
fn first(events: &[RunEvent], after: usize, wanted: impl Fn(&RunEvent) -> bool) -> usize {
    let found = events.iter().skip(after).position(wanted);
    after + found.unwrap_or_else(|| panic!("{:#?}", messages(events)))
}

fn messages(events: &[RunEvent]) -> Vec<&str> {
    events.iter().filter_map(decision_message).collect()
}

fn decision_message(event: &RunEvent) -> Option<&str> {
    match event {
        RunEvent::Decision { message, .. } => Some(message),
        _ => None,
    }
}

fn is_change(wanted: Change) -> impl Fn(&RunEvent) -> bool {
    move |event| matches!(event, RunEvent::Decision { phase: Phase::Train, decision, .. } if decision.change == wanted)
}

#[track_caller]
fn assert_follows_the_wave(events: &[RunEvent]) {
    let critical = |event: &RunEvent| {
        matches!(
            event,
            RunEvent::Memory {
                level: Level::Critical,
                ..
            }
        )
    };
    let critical = first(events, 0, critical);
    let shrunk = first(events, 0, is_change(Change::Shrink));
    assert!(shrunk < critical, "{:#?}", messages(events));
    let shortened = first(events, 0, is_change(Change::Prefetch));
    assert!(shortened < shrunk, "{:#?}", messages(events));
    let message = decision_message(&events[shortened]).unwrap_or_default();
    assert!(
        message.starts_with("Decoding fewer samples in advance: "),
        "{message}"
    );
    let grown = first(events, critical, is_change(Change::Grow));
    let size = |index: usize| match &events[index] {
        RunEvent::Decision {
            decision,
            previous_micro_batch,
            ..
        } => (*previous_micro_batch, decision.micro_batch),
        other => panic!("{other:?}"),
    };
    let (from, to) = size(shrunk);
    assert!(from > to, "{from} to {to}");
    let (from, to) = size(grown);
    assert!(from < to, "{from} to {to}");
}

/// Step and loss of every optimizer step, in the order of the events.
fn steps(events: &[RunEvent]) -> Vec<(u64, f64)> {
    let step = |event: &RunEvent| match event {
        RunEvent::Step { step, loss, .. } => Some((*step, *loss)),
        _ => None,
    };
    events.iter().filter_map(step).collect()
}

/// The largest difference between the losses of a run under pressure and those of the calm run,
/// and the first step with one above `allowed`. A run that resumes from a checkpoint repeats the
/// steps after it: each repetition counts.
fn difference(calm: &[(u64, f64)], wavy: &[(u64, f64)], allowed: f64) -> (f64, Option<u64>) {
    let expected: BTreeMap<u64, f64> = calm.iter().copied().collect();
    let steps = step_count() as usize;
    assert_eq!((calm.len(), expected.len()), (steps, steps));
    let reached: BTreeSet<u64> = wavy.iter().map(|(step, _)| *step).collect();
    assert!(reached.iter().eq(expected.keys()), "{reached:?}");
    let differences = wavy
        .iter()
        .map(|(step, loss)| (*step, (loss - expected[step]).abs()));
    let over = differences.clone().find(|(_, d)| d > &allowed);
    let largest = differences.map(|(_, d)| d).fold(0.0, f64::max);
    (largest, over.map(|(step, _)| step))
}

#[track_caller]
fn check_wave(options: &str, allowed: f64) {
    let (calm, wavy) = (trained(&[1.0], options), trained(&wave(), options));
    assert_follows_the_wave(&wavy);
    let (largest, over) = difference(&steps(&calm), &steps(&wavy), allowed);
    println!("{options}: losses differ by at most {largest:.2e}");
    println!("{:#?}", messages(&wavy));
    assert!(
        largest <= allowed,
        "{options}: {largest:.3e}, over {allowed:.0e} from step {over:?}"
    );
}

#[test]
fn memory_pressure_changes_no_loss_in_f64() {
    check_wave("--model convnet --precision f64", 1e-10);
}

#[test]
fn memory_pressure_changes_no_loss_in_f32() {
    for model in ["convnet", "vit_micro"] {
        check_wave(&format!("--model {model} --precision f32"), 1e-5);
    }
}
