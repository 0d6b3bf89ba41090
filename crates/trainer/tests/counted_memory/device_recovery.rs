//! A device that fails during a run: whatever fails where, the run ends with the losses of a
//! run without failures, bit for bit.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::noise_images::write_noise_images;
use crate::temporary_folder::temporary_folder;
use dataset::inspect_images;
use runlog::{Augmentation, CheckpointInterval, DeviceChoice, RunConfig, RunEvent, RunStore};
use std::fmt::Write;
use std::path::Path;
use tape::counting_allocator::live_bytes;
use tape::fault_injection::{Fault, Injection, ScheduledFault};
use trainer::{Machine, MemoryScript, Plan, Result, RunContext, RunOutcome, ScriptBy};

const SIDE: u32 = 16;
const STEPS: u64 = 6;
/// Places of a step at which each kind of failure happens; `device_faults` has random ones.
const PLACES: u64 = 7;

/// A run and its events.
struct Trained {
    outcome: Result<RunOutcome>,
    events: Vec<RunEvent>,
    /// Dispatches at the end of each step.
    dispatches: Vec<u64>,
    /// Waits for the device at the end of each step.
    waits: Vec<usize>,
    /// Bytes on the heap at each wait for the device.
    bytes_at_waits: Vec<u64>,
}

impl Trained {
    /// The loss of each step; the newest one counts if a step was done again.
    fn losses(&self) -> Vec<u64> {
        let mut losses = vec![0; STEPS as usize];
        for event in &self.events {
            if let RunEvent::Step { step, loss, .. } = event {
                losses[*step as usize - 1] = loss.to_bits();
            }
        }
        losses
    }

    fn micro_batches_of_second_step(&self) -> usize {
        let second = self.events.iter().find_map(|event| match event {
            RunEvent::Step {
                step: 2,
                micro_batches,
                ..
            } => Some(micro_batches.len()),
            _ => None,
        });
        second.unwrap()
    }

    fn warned(&self, expected: &str) -> bool {
        let mut events = self.events.iter();
        events.any(|event| matches!(event, RunEvent::Warning { code, .. } if code == expected))
    }
}

/// Writes the memory readings of a machine on which nothing else needs memory.
fn write_memory_script(path: &Path) {
    let mut script = String::new();
    for line in 0..2000 {
        let at_ms = 250 * line;
        writeln!(
            script,
            r#"{{"at_ms":{at_ms},"total_bytes":16000000000,"others_bytes":1000000000}}"#
        )
        .unwrap();
    }
    std::fs::write(path, script).unwrap();
}

/// Trains in micro-batches of 2 with these failures.
fn trained(faults: Vec<ScheduledFault>) -> Trained {
    let folder = temporary_folder();
    let images = folder.path().join("birds");
    write_noise_images(&images, 6, SIDE);
    let path = folder.path().join("script");
    write_memory_script(&path);
    let config = RunConfig {
        folder: Some(images.clone()),
        model: Some("convnet".to_owned()),
        image_size: Some(SIDE),
        augment: Some(Augmentation::None),
        effective_batch: Some(6),
        micro_batch: Some(2),
        steps: Some(STEPS),
        checkpoint_every: Some(CheckpointInterval::Steps(2)),
        device: Some(DeviceChoice::Cpu),
        threads: Some(1),
        ..RunConfig::default()
    };
    let inspection = inspect_images(&images, &Default::default(), &|_| {}).unwrap();
    let plan = Plan::resolve(&config, &inspection).unwrap();
    let run = RunStore::open(folder.path().join("runs"))
        .create("birds")
        .unwrap();
    let context = RunContext {
        machine: Machine {
            script: Some(MemoryScript {
                path,
                by: ScriptBy::Decision,
            }),
            ..Machine::default()
        },
        ..RunContext::default()
    };
    let injection = Injection::install(faults, 7);
    injection.measure_at_waits(live_bytes);
    let (mut events, mut dispatches, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let outcome = trainer::start(plan, inspection, &run, context, &mut |event| {
        if matches!(event, RunEvent::Step { .. }) {
            dispatches.push(injection.dispatches());
            waits.push(injection.measured_at_waits().len());
        }
        events.push(event.clone());
    });
    Trained {
        outcome,
        events,
        dispatches,
        waits,
        bytes_at_waits: injection.measured_at_waits(),
    }
}

/// Runs with this failure at `count` places of the third step. No checkpoint follows, which would
/// wait for the device as well.
fn disturbed(fault: Fault, calm: &Trained, count: u64) -> Vec<Trained> {
    let (from, to) = (calm.dispatches[1], calm.dispatches[2]);
    // The last place is the last dispatch of the optimizer's step.
    let places = (0..count).map(|i| from + (to - 1 - from) * i / (count - 1));
    let runs = places.map(|at| trained(vec![ScheduledFault { at, fault }]));
    runs.collect()
}

#[test]
fn no_failure_of_the_device_changes_the_losses() {
    let calm = trained(Vec::new());
    assert_eq!(calm.outcome.as_ref().unwrap().step, STEPS);
    for fault in [
        Fault::Timeout,
        Fault::OutOfMemory,
        Fault::SubmissionsIgnored,
        Fault::Exception,
    ] {
        let runs = disturbed(fault, &calm, PLACES);
        for run in &runs {
            let outcome = run.outcome.as_ref().unwrap();
            assert_eq!(outcome.step, STEPS, "{fault:?}");
            assert_eq!(run.losses(), calm.losses(), "{fault:?}");
        }
        // Each of them is reported late, so another failure may have damaged the weights.
        assert!(
            runs.iter().all(|run| run.warned("device_failed")),
            "{fault:?}"
        );
    }
}

#[test]
fn a_failure_before_or_after_an_update_loads_the_newest_checkpoint() {
    let calm = trained(Vec::new());
    // The third step has no checkpoint, and the fourth begins with a micro-batch or an evaluation.
    let end = calm.dispatches[2];
    for fault in [Fault::Timeout, Fault::OutOfMemory] {
        for at in end - 3..end + 3 {
            let run = trained(vec![ScheduledFault { at, fault }]);
            assert!(run.warned("device_failed"), "{fault:?} at {at}");
            assert_eq!(run.losses(), calm.losses(), "{fault:?} at {at}");
        }
    }
}

#[test]
fn a_checkpoint_whose_weights_cannot_be_read_is_written_in_another_attempt() {
    let calm = trained(Vec::new());
    let saved = |run: &Trained| {
        let events = run.events.iter();
        let saved = events.filter(|event| matches!(event, RunEvent::Checkpoint { .. }));
        saved.count()
    };
    // A checkpoint follows the second step. It reads all weights and moments, one after the other.
    let (end, next) = (calm.dispatches[1], calm.dispatches[2]);
    let step = next - calm.dispatches[0];
    let mut refused = 0;
    for place in 0..24 {
        let at = end + place * (next - end).min(step) / 48;
        let fault = Fault::AllocationRefused;
        let run = trained(vec![ScheduledFault { at, fault }]);
        let outcome = run.outcome.as_ref().unwrap();
        assert_eq!(outcome.step, STEPS, "at {at}");
        assert_eq!(run.losses(), calm.losses(), "at {at}");
        assert_eq!(saved(&run), saved(&calm), "at {at}");
        refused += u64::from(run.dispatches != calm.dispatches);
    }
    assert!(refused > 0, "no attempt failed");
}

#[test]
fn gradients_are_freed_while_the_device_updates_the_weights() {
    let calm = trained(Vec::new());
    let gradient_bytes = calm.events.iter().find_map(|event| match event {
        RunEvent::Started(started) => Some(4 * started.parameters),
        _ => None,
    });
    // The waits of the second step, which begins without a checkpoint. The last one is for the
    // update. The one before it is for the last micro-batch, whose gradients then exist beside the
    // sums of those before.
    assert!(calm.micro_batches_of_second_step() > 1);
    let of_step = &calm.bytes_at_waits[calm.waits[0]..calm.waits[1]];
    let at_update = of_step[of_step.len() - 1];
    let peak = of_step.iter().max().unwrap();
    let freed = peak.saturating_sub(at_update);
    assert!(
        2 * freed > 3 * gradient_bytes.unwrap(),
        "{freed} bytes were freed before the wait for the update: {of_step:?}"
    );
}

#[test]
fn a_step_waits_once_for_each_micro_batch_and_once_for_its_update() {
    let calm = trained(Vec::new());
    // On the CPU the gradient norm is reported without a wait that would be counted.
    let waits = calm.waits[1] - calm.waits[0];
    assert_eq!(waits, calm.micro_batches_of_second_step() + 1);
}

#[test]
fn a_device_that_fails_in_every_step_ends_the_run() {
    let calm = trained(Vec::new());
    let fault = Fault::SubmissionsIgnored;
    let at = |i: u64| ScheduledFault {
        at: calm.dispatches[2] + 5 * i,
        fault,
    };
    let run = trained((0..10_000).map(at).collect());
    let error = run.outcome.unwrap_err();
    assert_eq!(error.code(), "device", "{error}");
    assert!(error.to_string().contains(fault.description()), "{error}");
}
