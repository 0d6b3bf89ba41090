//! A device that fails at any dispatch of a run, a checkpoint, a resume, an evaluation,
//! a prediction, a generated text or an export: the result is that of a device without failures bit
//! for bit, or there is an error that names the failure, and the newest checkpoint holds the right
//! weights.
//!
//! `EBB_FAULT_SCHEDULES` sets the number of random schedules and `EBB_FAULT_SEED` the first of
//! them; the seed alone replays one.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

mod compare_with_fault_free_run;
#[path = "../support/noise_images.rs"]
mod noise_images;
mod interrupted_run;
mod training_setups;
mod fault_schedule;
mod trained_model_usage;
#[path = "../support/temporary_folder.rs"]
mod temporary_folder;
#[path = "../support/watchdog.rs"]
mod watchdog;

use compare_with_fault_free_run::{Outcome, check};
use fault_schedule::Schedule;
use interrupted_run::undisturbed;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use training_setups::Scenario;
use watchdog::Watchdog;

/// Schedules that every test run plays; `make test-long` plays more.
const SCHEDULES: u64 = 80;
/// Schedules that found a fault of Ebb and are always played: the best checkpoint was left out
/// without a warning after two failures of the GPU during a save.
const FOUND: [u64; 4] = [977, 4442, 6699, 8618];
/// A schedule that takes longer hangs. It takes a fraction of a second.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// The seeds to play.
fn seeds() -> Vec<u64> {
    let count = setting("EBB_FAULT_SCHEDULES");
    match setting("EBB_FAULT_SEED") {
        Some(first) => (first..first + count.unwrap_or(1)).collect(),
        None => {
            let random = 0..count.unwrap_or(SCHEDULES);
            let found = FOUND.into_iter().filter(|seed| !random.contains(seed));
            random.clone().chain(found).collect()
        }
    }
}

#[test]
fn no_fault_changes_a_training_silently() {
    let watchdog = Watchdog::new("EBB_FAULT_SEED", HANGS_AFTER);
    let scenarios = Scenario::all();
    let calm: Vec<_> = scenarios.iter().map(undisturbed).collect();
    for (scenario, record) in scenarios.iter().zip(&calm) {
        let name = scenario.name;
        println!(
            "{name}: {} dispatches, {} of them in uses, {:.0} ms",
            record.dispatches, record.usage_dispatches, record.ms
        );
    }
    let began = Instant::now();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    let seeds = seeds();
    for &seed in &seeds {
        watchdog.begin(seed);
        let index = Scenario::index_of_seed(seed);
        let (scenario, calm) = (&scenarios[index], &calm[index]);
        let schedule = Schedule::from_seed(seed, calm.training_dispatches(), calm.usage_dispatches);
        let outcome = check(scenario, calm, &schedule);
        if let Outcome::Failed(reason) = &outcome {
            let name = scenario.name;
            failures.push(format!(
                "EBB_FAULT_SEED={seed} ({name}): {reason}\n{schedule}"
            ));
            eprintln!("{}", failures[failures.len() - 1]);
        }
        *counts.entry(outcome.class()).or_default() += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{} schedules in {seconds:.1} s", seeds.len());
    for (class, count) in counts {
        println!("{count:>7}  {class}");
    }
    assert!(
        failures.is_empty(),
        "{} schedules failed:\n{}",
        failures.len(),
        failures[..failures.len().min(20)].join("\n")
    );
}
