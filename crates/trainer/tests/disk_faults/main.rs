//! A disk that fails at any operation of a run, or loses power after any of its changes. The next
//! start finds a whole checkpoint that is at most one interval old, a run that opens, no stuck lock
//! and nothing under a temporary name; a resumed run ends with the weights of an undisturbed one.
//!
//! Each operation fails in one of four ways, in turn. With `EBB_DISK_FAULTS=all` it fails in all
//! four, and the run is resumed after every power failure; `make test-long` sets this.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

mod check;
#[path = "../support/noise_images.rs"]
mod noise_images;
mod scenario;

use check::{Expected, next_start};
use dataset::DetectedDataset;
use disk::simulated::{Fault, SimulatedDisk, Survivors};
use pressure::Action;
use runlog::{CheckpointReason, RunEvent, RunStore, StopReason, read_events};
use scenario::{INTERVAL, STEPS, Scenario, Story, files, temporary_folder};
use std::time::Duration;
use trainer::Control;

/// Random sets of changes that survive a power failure, for each moment.
const SEEDS: u64 = 2;
/// After every power failure with this distance, the run is also resumed.
const RESUMES_EVERY: usize = 40;

/// A write that takes longer than the training that may be repeated.
const SLOW_WRITE: Duration = Duration::from_secs(31);

fn is_complete() -> bool {
    std::env::var("EBB_DISK_FAULTS").is_ok_and(|value| value == "all")
}

/// A run on a disk that works.
fn calm(scenario: &Scenario) -> (Story, usize) {
    let root = temporary_folder();
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let story = scenario.play(root.path(), &disk);
    expect_calm(&story);
    (story, disk.operations().len())
}

fn expect_calm(story: &Story) {
    let Story {
        errors, complaints, ..
    } = story;
    assert!(
        errors.is_empty() && complaints.is_empty(),
        "{errors:#?} {complaints:#?}"
    );
}

#[test]
fn every_change_goes_through_the_file_layer() {
    let (scenario, root) = (Scenario::new(true), temporary_folder());
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let story = scenario.play(root.path(), &disk);
    expect_calm(&story);
    let mut cuts = disk.power_cuts();
    while cuts.next_change().is_some() {}
    let recorded = temporary_folder();
    cuts.leave(Survivors::All, recorded.path()).unwrap();
    let (mut real, recorded) = (files(root.path()), files(recorded.path()));
    // The lock is of the process; nothing is lost with it.
    real.retain(|name, _| !name.ends_with("/lock"));
    let (real_names, names): (Vec<_>, Vec<_>) = (real.keys().collect(), recorded.keys().collect());
    assert_eq!(real_names, names);
    assert!(real == recorded, "the contents differ");
}

#[test]
fn any_operation_may_fail() {
    let scenario = Scenario::new(is_complete());
    let (calm, operations) = calm(&scenario);
    let mut failures = Vec::new();
    let mut tried = 0;
    for operation in 0..operations {
        for (number, fault) in Fault::ALL.into_iter().enumerate() {
            if !is_complete() && operation % Fault::ALL.len() != number {
                continue;
            }
            tried += 1;
            if let Err(reason) = with_fault(&scenario, &calm, fault, operation) {
                failures.push(format!("{fault:?} at operation {operation}, {reason}"));
            }
        }
    }
    println!("{operations} operations, {tried} failures tried");
    assert!(operations > 150, "{operations}");
    assert!(
        failures.is_empty(),
        "{}\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Plays everything with one fault, and opens the run again.
fn with_fault(
    scenario: &Scenario,
    calm: &Story,
    fault: Fault,
    operation: usize,
) -> Result<(), String> {
    let root = temporary_folder();
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    disk.fail(fault, operation);
    let mut story = scenario.play(root.path(), &disk);
    let failed = disk.failed();
    disk.heal();
    let mut check = || {
        if fault == Fault::Interrupted {
            story.complaints.append(&mut story.errors);
        }
        if let Some(complaint) = story.complaints.first() {
            return Err(complaint.clone());
        }
        let saved = story.last_saved(usize::MAX);
        let expected = Expected {
            calm,
            exported: if story.exported.is_some() {
                &story.exported
            } else {
                &calm.exported
            },
            saved,
            // A disk that does not accept checkpoints keeps none of later steps.
            step: saved,
            has_begun: story.begun.is_some(),
        };
        next_start(scenario, &disk, root.path(), &expected, true)
    };
    let outcome = check();
    outcome.map_err(|reason| format!("{failed:?}: {reason}; errors: {:?}", story.errors))
}

#[test]
fn the_power_may_fail_after_any_change() {
    let (scenario, root) = (Scenario::new(true), temporary_folder());
    let disk = SimulatedDisk::new(root.path());
    let story = {
        let _installed = disk.install();
        scenario.play(root.path(), &disk)
    };
    expect_calm(&story);
    let mut cuts = disk.power_cuts();
    let (mut changes, mut failures) = (0, Vec::new());
    while let Some(change) = cuts.next_change() {
        changes += 1;
        let seeds = (0..SEEDS).map(|seed| Survivors::Seed(1000 * seed + changes as u64));
        let all = [Survivors::All, Survivors::None].into_iter().chain(seeds);
        for (number, survivors) in all.enumerate() {
            let left = temporary_folder();
            cuts.leave(survivors, left.path()).unwrap();
            let expected = Expected {
                calm: &story,
                exported: &story.exported,
                saved: story.last_saved(changes),
                step: story.last_step(changes),
                has_begun: story.begun.is_some_and(|begun| begun <= changes),
            };
            let resumes = is_complete() || (changes + 11 * number).is_multiple_of(RESUMES_EVERY);
            let runs = RunStore::open(left.path().join("runs")).list().unwrap();
            for fact in story.facts.iter().filter(|_| !runs.is_empty()) {
                if !fact.holds(&runs[0], changes) {
                    let file = fact.file;
                    failures.push(format!("{survivors:?} after {changes}, {change}: {file}"));
                }
            }
            if let Err(reason) = next_start(&scenario, &disk, left.path(), &expected, resumes) {
                failures.push(format!("{survivors:?} after {changes}, {change}: {reason}"));
            }
        }
    }
    println!("{changes} changes, {} power failures after each", 2 + SEEDS);
    assert!(
        failures.is_empty(),
        "{}\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// From the first step on the disk is full; it has space again after the fourth.
#[test]
fn a_full_disk_does_not_end_the_training() {
    let (scenario, root) = (Scenario::new(true), temporary_folder());
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let run = RunStore::open(root.path()).create("birds").unwrap();
    let mut observed = Vec::new();
    let mut observer = |event: &RunEvent| {
        match event {
            RunEvent::Step { step: 1, .. } => disk.fail(Fault::NoSpace, disk.operations().len()),
            RunEvent::Step { step: 4, .. } => disk.heal(),
            _ => {}
        }
        observed.push(event.clone());
    };
    let context = scenario.context(&Control::default());
    let found = scenario.found.clone();
    let outcome = trainer::start(scenario.plan(), found, &run, context, &mut observer).unwrap();
    assert_eq!(
        (outcome.reason, outcome.step),
        (StopReason::Finished, STEPS)
    );
    let warned = |code: &str| {
        let is_warning = |event: &&RunEvent| matches!(event, RunEvent::Warning { code: found, .. } if found == code);
        observed.iter().filter(is_warning).count()
    };
    assert!(warned("checkpoint_write") > 0, "{observed:#?}");
    assert_eq!(warned("events_not_written"), 1, "{observed:#?}");
    // The log has them all, in order.
    assert_eq!(read_events(&run.events_path()).unwrap(), observed);
}

/// There is no space for a checkpoint until the fourth step: the training continues, one warning
/// says so, and the next checkpoint is written once there is space.
#[test]
fn checkpoints_wait_for_space() {
    let (scenario, root) = (Scenario::new(true), temporary_folder());
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let run = RunStore::open(root.path()).create("birds").unwrap();
    let (mut saved, mut warnings) = (Vec::new(), Vec::new());
    disk.report_available_bytes(Some(1));
    let mut observer = |event: &RunEvent| match event {
        RunEvent::Step { step: 4, .. } => disk.report_available_bytes(None),
        RunEvent::Checkpoint { step, .. } => saved.push(*step),
        RunEvent::Warning { code, message, .. } if code == "disk_short" => {
            warnings.push(message.clone());
        }
        _ => {}
    };
    let context = scenario.context(&Control::default());
    let found = scenario.found.clone();
    let outcome = trainer::start(scenario.plan(), found, &run, context, &mut observer).unwrap();
    assert_eq!(outcome.step, STEPS);
    assert_eq!(saved.first(), Some(&4), "{saved:?}");
    // One at the start, and one instead of the first checkpoint.
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    assert!(
        warnings[1].contains("training continues without a checkpoint at step"),
        "{warnings:#?}"
    );
    let newest = run.checkpoints().unwrap().pop().unwrap();
    assert_eq!(newest.step, STEPS);
}

/// Another process trains the run: nothing of it is read, so that nothing is read half.
#[test]
fn the_lock_is_taken_before_anything_is_read() {
    let (scenario, root) = (Scenario::new(false), temporary_folder());
    let disk = SimulatedDisk::new(root.path());
    scenario.play(root.path(), &disk);
    let runs = RunStore::open(root.path().join("runs")).list().unwrap();
    let _claim = runs[0].claim().unwrap();
    std::fs::write(runs[0].path.join("data.json"), "{").unwrap();
    let context = scenario.context(&Control::default());
    let error = trainer::resume_to(&runs[0], None, context, &mut |_| {})
        .err()
        .unwrap();
    assert!(error.to_string().contains("is being trained by"), "{error}");
}

#[test]
fn images_that_changed_since_the_run_began_are_reported() {
    let (scenario, root) = (Scenario::new(true), temporary_folder());
    let disk = SimulatedDisk::new(root.path());
    let run = RunStore::open(root.path()).create("birds").unwrap();
    let mut story = Story::default();
    scenario.start(&run, &disk, &mut story).unwrap();
    let DetectedDataset::Images(found) = &scenario.found else {
        panic!("these are images");
    };
    let image = found.folder.join(&found.files[3].path);
    let mut bytes = std::fs::read(&image).unwrap();
    bytes.extend(b"a comment after the end of the image");
    std::fs::write(&image, bytes).unwrap();
    assert!(!story.warnings.contains(&"data_changed".to_owned()));
    scenario.resume(&run, &disk, &mut story).unwrap();
    assert!(story.warnings.contains(&"data_changed".to_owned()));
}

/// Other apps take all memory after a checkpoint of step 2 that took half a minute to write. To
/// write another one would take as long, so the run resumes from step 2 and repeats what follows.
#[test]
fn a_suspension_does_not_wait_for_a_slow_disk() {
    let scenario = Scenario::new(false).with_shortage_after(6);
    let root = temporary_folder();
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let run = RunStore::open(root.path().join("runs")).create("birds");
    let run = run.unwrap();
    let (mut steps, mut pressed, mut suspended_at) = (Vec::new(), Vec::new(), None);
    let mut observer = |event: &RunEvent| match event {
        RunEvent::Step { step, .. } => {
            if *step == INTERVAL && steps == [1] {
                disk.delay_sync(SLOW_WRITE);
            }
            steps.push(*step);
        }
        RunEvent::Decision { decision, .. } if decision.action == Action::Suspend => {
            suspended_at.get_or_insert(steps.len());
        }
        RunEvent::Checkpoint { step, reason, .. } if *reason == CheckpointReason::Pressure => {
            pressed.push(*step);
        }
        _ => {}
    };
    let context = scenario.context(&Control::default());
    let (plan, found) = (scenario.plan(), scenario.found.clone());
    trainer::start(plan, found, &run, context, &mut observer).unwrap();
    println!("steps {steps:?}, suspended after {suspended_at:?}, checkpoints {pressed:?}");
    let done = suspended_at.expect("it was suspended");
    assert_eq!(
        pressed, [0; 0],
        "no checkpoint was written for the suspension"
    );
    assert_eq!(steps[done - 1], INTERVAL + 1, "a step is not saved");
    assert_eq!(steps[done], INTERVAL + 1, "it is repeated");
    assert_eq!(steps.last(), Some(&STEPS));
}
