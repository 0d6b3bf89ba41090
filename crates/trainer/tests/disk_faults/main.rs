//! A disk that fails at any operation of a run, or loses power after any of its changes. The next
//! start finds a whole checkpoint that is at most one interval old, a run that opens, no stuck lock
//! and nothing under a temporary name; a resumed run ends with the weights of an undisturbed one.
//!
//! Each operation fails in one of four ways, in turn. With `EBB_DISK_FAULTS=all` it fails in all
//! four, and the run is resumed after every power failure; `make test-long` sets this.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

mod check;
mod later_uses;
#[path = "../support/noise_images.rs"]
mod noise_images;
mod postponed_best;
mod postponed_best_faults;
mod scenario;
#[path = "../support/temporary_folder.rs"]
mod temporary_folder;

use check::{Expected, next_start};
use dataset::DetectedDataset;
use disk::simulated::{Fault, SimulatedDisk, Survivors};
use pressure::Action;
use runlog::{CheckpointReason, RunEvent, RunFolder, RunStore, StopReason, read_events};
use scenario::{INTERVAL, STEPS, Scenario, Story, files};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use temporary_folder::temporary_folder;
use trainer::Control;
use trainer::internals::TrainState;

/// Random sets of changes that survive a power failure, for each moment.
const SEEDS: u64 = 2;
/// After every power failure with this distance, the run is also resumed.
const RESUMES_EVERY: usize = 40;

/// A checkpoint that takes longer than 2 s to write is not written when a suspension is due.
const SLOW_SUSPENSION: Duration = Duration::from_secs(4);

fn is_complete() -> bool {
    std::env::var("EBB_DISK_FAULTS").is_ok_and(|value| value == "all")
}

/// A run on a disk that works: its folder, the disk, and what happened.
fn played(scenario: &Scenario) -> (TempDir, Arc<SimulatedDisk>, Story) {
    let root = temporary_folder();
    let disk = SimulatedDisk::new(root.path());
    let story = {
        let _installed = disk.install();
        scenario.play(root.path(), &disk)
    };
    let Story {
        errors, complaints, ..
    } = &story;
    assert!(
        errors.is_empty() && complaints.is_empty(),
        "{errors:#?} {complaints:#?}"
    );
    (root, disk, story)
}

/// A run on a disk that works, and its number of operations.
fn calm(scenario: &Scenario) -> (Story, usize) {
    let (_root, disk, story) = played(scenario);
    let operations = disk.operations().len();
    (story, operations)
}

#[test]
fn every_change_goes_through_the_file_layer() {
    let (root, disk, _) = played(&Scenario::new(true));
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
    let operations = fail_each(&Scenario::new(is_complete()), 1);
    assert!(operations > 150, "{operations}");
}

/// As for images; a model with a tokenizer, of which only the adapters are trained, has other
/// files. Without `EBB_DISK_FAULTS=all`, only some operations fail.
#[test]
fn any_operation_of_a_text_run_with_adapters_may_fail() {
    let every = if is_complete() { 1 } else { 13 };
    let operations = fail_each(&Scenario::texts_with_adapters(), every);
    assert!(operations > 150, "{operations}");
}

/// Plays everything once for each fault of each operation, or of every nth. Returns the number of
/// operations.
fn fail_each(scenario: &Scenario, every: usize) -> usize {
    let (calm, operations) = calm(scenario);
    let mut failures = Vec::new();
    let mut tried = 0;
    for operation in (0..operations).step_by(every) {
        for (number, fault) in Fault::ALL.into_iter().enumerate() {
            if !is_complete() && operation % Fault::ALL.len() != number {
                continue;
            }
            tried += 1;
            if let Err(reason) = with_fault(scenario, &calm, fault, operation) {
                failures.push(format!("{fault:?} at operation {operation}, {reason}"));
            }
        }
    }
    println!("{operations} operations, {tried} failures tried");
    assert!(
        failures.is_empty(),
        "{}\n{}",
        failures.len(),
        failures.join("\n")
    );
    operations
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
            step: match fault {
                // A failure that passes costs at most one interval.
                Fault::InputOutput | Fault::Interrupted => story.last_step(usize::MAX),
                // A disk that does not accept checkpoints keeps none of later steps.
                Fault::NoSpace | Fault::ReadOnly => saved,
            },
            has_begun: story.begun.is_some(),
            best: scenario.best_after(calm, &story),
        };
        next_start(scenario, &disk, root.path(), &expected, true)
    };
    let outcome = check();
    outcome.map_err(|reason| format!("{failed:?}: {reason}; errors: {:?}", story.errors))
}

#[test]
fn the_power_may_fail_after_any_change() {
    let scenario = Scenario::new(true);
    let (_root, disk, story) = played(&scenario);
    cut_after_each_change(&scenario, &disk, &story);
}

/// Cuts the power after each change of a run on a disk that worked, and opens the run again.
fn cut_after_each_change(scenario: &Scenario, disk: &SimulatedDisk, story: &Story) {
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
                calm: story,
                exported: &story.exported,
                saved: story.last_saved(changes),
                step: story.last_step(changes),
                has_begun: story.begun.is_some_and(|begun| begun <= changes),
                best: scenario.best_after(story, story),
            };
            let resumes = is_complete() || (changes + 11 * number).is_multiple_of(RESUMES_EVERY);
            let runs = RunStore::open(left.path().join("runs")).list().unwrap();
            for fact in story.facts.iter().filter(|_| !runs.is_empty()) {
                if !fact.holds(&runs[0], changes) {
                    let file = fact.file;
                    failures.push(format!("{survivors:?} after {changes}, {change}: {file}"));
                }
            }
            if let Err(reason) = next_start(scenario, disk, left.path(), &expected, resumes) {
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

/// The files of a run in the store and in the trash, as far as it is there.
fn places_of(root: &std::path::Path, id: &str) -> Vec<BTreeMap<String, Vec<u8>>> {
    let places = ["runs", "trash"].map(|place| root.join(place).join(id));
    let there = places.iter().filter(|place| place.is_dir());
    there
        .map(|place| {
            let mut found = files(place);
            // The lock is of the process.
            found.remove("lock");
            found
        })
        .collect()
}

/// Moves a run to the trash: a folder beside the store.
fn delete(root: &std::path::Path, run: &RunFolder) -> std::io::Result<()> {
    let place = root.join("trash").join(run.id());
    let _claim = run.claim().map_err(std::io::Error::other)?;
    disk::create_dir_all(&root.join("trash"))?;
    disk::rename(&run.path, &place)?;
    disk::sync_parent(&place)?;
    disk::sync_parent(&run.path)
}

/// The power fails after any change of the deletion: the run is whole, in the store or in the
/// trash.
#[test]
fn a_deleted_run_is_whole_in_one_place() {
    let (scenario, root) = (Scenario::new(false), temporary_folder());
    let disk = SimulatedDisk::new(root.path());
    let (run, before) = {
        let _installed = disk.install();
        let run = RunStore::open(root.path().join("runs")).create("birds");
        let run = run.unwrap();
        scenario.start(&run, &disk, &mut Story::default()).unwrap();
        let before = disk.changes();
        delete(root.path(), &run).unwrap();
        (run, before)
    };
    let whole = places_of(root.path(), &run.id());
    assert_eq!(whole.len(), 1);
    let (mut cuts, mut changes, mut moved) = (disk.power_cuts(), 0, 0);
    while let Some(change) = cuts.next_change() {
        changes += 1;
        if changes < before {
            continue;
        }
        let seeds = (0..8).map(|seed| Survivors::Seed(1000 * seed + changes as u64));
        for survivors in [Survivors::All, Survivors::None].into_iter().chain(seeds) {
            let left = temporary_folder();
            cuts.leave(survivors, left.path()).unwrap();
            let found = places_of(left.path(), &run.id());
            assert!(found == whole, "{survivors:?} after {change}");
            moved += usize::from(!left.path().join("runs").join(run.id()).is_dir());
        }
    }
    assert!(changes > before && moved > 0, "{changes} {before} {moved}");
}

/// Each operation of the deletion fails in turn: the run is whole in one place, and can be deleted
/// again if it is in the store.
#[test]
fn a_failing_disk_leaves_a_deleted_run_whole() {
    let scenario = Scenario::new(false);
    let mut failures = 0;
    for fault in Fault::ALL {
        for operation in 0.. {
            let root = temporary_folder();
            let disk = SimulatedDisk::new(root.path());
            let _installed = disk.install();
            let run = RunStore::open(root.path().join("runs")).create("birds");
            let run = run.unwrap();
            run.write_config(&scenario.config()).unwrap();
            let whole = places_of(root.path(), &run.id());
            disk.fail(fault, disk.operations().len() + operation);
            let deleted = delete(root.path(), &run);
            let Some(failed) = disk.failed() else {
                break;
            };
            failures += 1;
            disk.heal();
            let about = format!("{fault:?} at {failed}");
            assert!(places_of(root.path(), &run.id()) == whole, "{about}");
            if run.path.is_dir() {
                assert!(deleted.is_err(), "{about}");
                delete(root.path(), &run).unwrap();
            }
            assert!(places_of(root.path(), &run.id()) == whole, "{about}");
        }
    }
    assert!(failures > 8, "{failures}");
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

/// Trains while the disk says that this many bytes are free. Returns the steps of the checkpoints
/// that could wait, and the warnings.
fn train_with_free_bytes(scenario: &Scenario, bytes: u64) -> (Vec<u64>, Vec<String>) {
    let root = temporary_folder();
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let run = RunStore::open(root.path()).create("birds").unwrap();
    let (mut saved, mut warnings) = (Vec::new(), Vec::new());
    disk.report_available_bytes(Some(bytes));
    let mut observer = |event: &RunEvent| match event {
        RunEvent::Checkpoint { step, reason, .. } if *reason != CheckpointReason::Stop => {
            saved.push(*step);
        }
        RunEvent::Warning { code, message, .. } if code == "disk_short" => {
            warnings.push(message.clone());
        }
        _ => {}
    };
    let context = scenario.context(&Control::default());
    let found = scenario.found.clone();
    let outcome = trainer::start(scenario.plan(), found, &run, context, &mut observer).unwrap();
    assert_eq!(outcome.step, STEPS);
    (saved, warnings)
}

#[test]
fn a_checkpoint_is_written_if_there_is_twice_its_space() {
    let scenario = Scenario::new(false);
    let plan = scenario.plan();
    let learner = TrainState::new(&plan, &candle_core::Device::Cpu).unwrap();
    let bytes = learner.saved_bytes();
    let (saved, warnings) = train_with_free_bytes(&scenario, bytes * 3 / 2);
    assert_eq!(saved, [0; 0]);
    // One at the start, and one instead of the first checkpoint.
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    assert!(
        warnings[1].contains("twice the size of a checkpoint"),
        "{warnings:#?}"
    );
    let (saved, warnings) = train_with_free_bytes(&scenario, 2 * bytes);
    assert_eq!(saved.first(), Some(&INTERVAL), "{saved:?}");
    assert_eq!(warnings, [""; 0]);
}

/// The first of two checkpoints fails at its end. The next try follows within the interval, but
/// not at once: tries that fail cost time too.
#[test]
fn a_failed_checkpoint_is_tried_again_within_the_interval() {
    let (interval, steps) = (100, 200);
    let scenario = Scenario::new(false).with_steps(steps, interval);
    let root = temporary_folder();
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let run = RunStore::open(root.path()).create("birds").unwrap();
    let (mut saved, mut tries, mut warnings) = (None, 0, 0);
    let mut observer = |event: &RunEvent| match event {
        RunEvent::Step { step, .. } if *step >= interval && saved.is_none() => {
            if *step == interval {
                // In the middle of the checkpoint that follows.
                disk.fail(Fault::InputOutput, disk.operations().len() + 4);
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        RunEvent::Checkpoint { step, .. } if saved.is_none() => {
            saved = Some(*step);
            let operations = disk.operations();
            let begins =
                |name: &&String| name.starts_with("create ") && name.contains(".draft-step-");
            tries = operations.iter().filter(begins).count();
        }
        RunEvent::Warning { code, .. } if code == "checkpoint_write" => warnings += 1,
        _ => {}
    };
    let context = scenario.context(&Control::default());
    let found = scenario.found.clone();
    trainer::start(scenario.plan(), found, &run, context, &mut observer).unwrap();
    println!(
        "{:?}: saved after {tries} tries at {saved:?}",
        disk.failed()
    );
    assert_eq!(warnings, 1);
    assert!(
        saved.is_some_and(|step| interval < step && step < steps),
        "{saved:?}"
    );
    assert_eq!(tries, 2, "one that failed, and one that did not");
}

/// The disk becomes nearly full, and later completely: one checkpoint is written while it fits,
/// one warning says so, and the run trains to its end.
#[test]
fn a_disk_that_becomes_short_gets_one_checkpoint_and_one_warning() {
    let scenario = Scenario::new(false).with_steps(120, 1_000);
    let root = temporary_folder();
    let disk = SimulatedDisk::new(root.path());
    let _installed = disk.install();
    let run = RunStore::open(root.path()).create("birds").unwrap();
    let (mut saved, mut warnings, mut last) = (Vec::new(), Vec::new(), 0);
    let mut observer = |event: &RunEvent| match event {
        RunEvent::Step { step, .. } => {
            match *step {
                20 => disk.report_available_bytes(Some(1 << 30)),
                100 => disk.report_available_bytes(Some(0)),
                _ => {}
            }
            if (20..100).contains(step) {
                std::thread::sleep(Duration::from_millis(30));
            }
            last = *step;
        }
        RunEvent::Checkpoint { step, reason, .. } if *reason != CheckpointReason::Stop => {
            saved.push(*step);
        }
        RunEvent::Warning { code, message, .. } if code == "disk_short" => {
            warnings.push(message.clone());
        }
        _ => {}
    };
    let context = scenario.context(&Control::default());
    let found = scenario.found.clone();
    disk.report_available_bytes(Some(50 << 30));
    let outcome = trainer::start(scenario.plan(), found, &run, context, &mut observer).unwrap();
    assert_eq!((outcome.reason, last), (StopReason::Finished, 120));
    assert_eq!(saved.len(), 1, "{saved:?}");
    assert!((21..100).contains(&saved[0]), "{saved:?}");
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    let expected = format!("the newest checkpoint is from step {}", saved[0]);
    assert!(warnings[0].contains(&expected), "{warnings:#?}");
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

/// Other apps take all memory after a checkpoint of step 2 that took some seconds to write. To
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
                disk.delay_sync(SLOW_SUSPENSION);
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
