//! The disk fails, or the power, while the checkpoint of the best evaluation waits in memory: when
//! it is due, at a stop, in a pause, at the end of the run, and in the session after a kill. At its
//! end, the run has the best evaluation all the same.

use crate::check::{Expected, next_start};
use crate::scenario::{Scenario, Story};
use crate::temporary_folder::temporary_folder;
use crate::{cut_after_each_change, fail_each, is_complete, played};
use disk::simulated::{Fault, SimulatedDisk, Survivors};
use runlog::CheckpointReason::{Best, Periodic, Requested, Stop};
use runlog::{CheckpointReason, RunStore};

/// Steps and reasons of the checkpoints.
fn saved(story: &Story) -> Vec<(u64, CheckpointReason)> {
    let steps = story.saved.iter().map(|(_, step)| *step);
    steps.zip(story.reasons.iter().copied()).collect()
}

/// The step of the best checkpoint that waited until one of a later step was saved for `reason`.
fn waited_until(story: &Story, reason: CheckpointReason) -> Option<u64> {
    let saved = saved(story);
    let mut pairs = saved.windows(2).map(|pair| (pair[0], pair[1]));
    let found = pairs.find(|(best, next)| best.1 == Best && next.1 == reason && best.0 < next.0);
    found.map(|(best, _)| best.0)
}

/// A best checkpoint waits until one is due, until the user stops, and until the user pauses.
fn expect_waiting(story: &Story) {
    let saved = saved(story);
    for reason in [Periodic, Stop] {
        assert!(
            waited_until(story, reason).is_some(),
            "{reason:?}: {saved:?}, best {:?}",
            story.best
        );
    }
    let in_pause = [(8, Requested), (9, Best)];
    assert!(saved.windows(2).any(|pair| pair == in_pause), "{saved:?}");
}

fn expect_waiting_to_the_end(story: &Story) {
    assert!(waited_until(story, Stop).is_some(), "{:?}", saved(story));
}

/// Without `EBB_DISK_FAULTS=all`, only some operations fail.
#[test]
fn any_operation_may_fail_while_a_best_checkpoint_waits() {
    let every = if is_complete() { 1 } else { 17 };
    let scenario = Scenario::with_best_ones_that_wait();
    expect_waiting(&played(&scenario).2);
    let operations = fail_each(&scenario, every);
    assert!(operations > 250, "{operations}");
}

#[test]
fn any_operation_may_fail_while_the_best_checkpoint_waits_for_the_end() {
    let every = if is_complete() { 1 } else { 3 };
    let scenario = Scenario::with_best_one_that_waits_to_the_end();
    expect_waiting_to_the_end(&played(&scenario).2);
    let operations = fail_each(&scenario, every);
    assert!(operations > 100, "{operations}");
}

#[test]
fn the_power_may_fail_while_a_best_checkpoint_waits() {
    let scenario = Scenario::with_best_ones_that_wait();
    let (_root, disk, story) = played(&scenario);
    expect_waiting(&story);
    cut_after_each_change(&scenario, &disk, &story);
}

#[test]
fn the_power_may_fail_while_the_best_checkpoint_waits_for_the_end() {
    let scenario = Scenario::with_best_one_that_waits_to_the_end();
    let (_root, disk, story) = played(&scenario);
    expect_waiting_to_the_end(&story);
    cut_after_each_change(&scenario, &disk, &story);
}

/// The disk refuses each operation of the best checkpoint once, when the run stops at a later step.
/// The checkpoint of that step, which is written before the next try, names an earlier best one.
/// The power then fails after each change.
#[test]
fn a_best_checkpoint_that_is_written_late_is_the_best() {
    let scenario = Scenario::with_best_ones_that_wait();
    let (_root, calm_disk, calm) = played(&scenario);
    let best = waited_until(&calm, Stop).unwrap();
    let folder = format!("step-{best:06}");
    let operations = calm_disk.operations();
    let concerned = operations.iter().enumerate().filter(|(_, name)| {
        name.contains(&folder) && !name.starts_with("remove") && !name.starts_with("list")
    });
    let (mut late, mut failures) = (0, Vec::new());
    for (operation, name) in concerned {
        let root = temporary_folder();
        let disk = SimulatedDisk::new(root.path());
        let mut story = Story::default();
        let installed = disk.install();
        disk.fail(Fault::InputOutput, operation);
        let run = RunStore::open(root.path().join("runs")).create("birds");
        let stopped = scenario.start(&run.unwrap(), &disk, &mut story);
        disk.heal();
        drop(installed);
        let order: Vec<_> = story.saved.iter().map(|(_, step)| *step).collect();
        let last = scenario.stop_after;
        late += usize::from(order.ends_with(&[last, best, last]));
        if stopped.is_err() || !order.contains(&best) {
            failures.push(format!("{name}: {order:?}, {:?}", stopped.err()));
        }
        let (mut cuts, mut changes) = (disk.power_cuts(), 0);
        while let Some(change) = cuts.next_change() {
            changes += 1;
            for survivors in [Survivors::All, Survivors::None] {
                let left = temporary_folder();
                cuts.leave(survivors, left.path()).unwrap();
                let expected = Expected {
                    calm: &calm,
                    exported: &None,
                    saved: story.last_saved(changes),
                    step: story.last_step(changes),
                    has_begun: story.begun.is_some_and(|begun| begun <= changes),
                    best: None,
                };
                if let Err(reason) = next_start(&scenario, &disk, left.path(), &expected, false) {
                    failures.push(format!("{name}, {survivors:?} after {change}: {reason}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(late > 3, "{late}");
}
