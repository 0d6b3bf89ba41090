//! A device that fails during a run: whatever fails where, the run ends with the losses of a
//! run without failures, bit for bit.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

#[path = "support/noise_images.rs"]
mod noise_images;

use dataset::inspect_images;
use noise_images::write_noise_images;
use runlog::{Augmentation, CheckpointInterval, DeviceChoice, RunConfig, RunEvent, RunStore};
use std::fmt::Write;
use tape::fault_injection::{Fault, Injection, ScheduledFault};
use trainer::{Machine, MemoryScript, Plan, Result, RunContext, RunOutcome, ScriptBy};

const SIDE: u32 = 16;
const STEPS: u64 = 6;

/// A run and its events.
struct Trained {
    outcome: Result<RunOutcome>,
    events: Vec<RunEvent>,
    /// Dispatches at the end of each step.
    dispatches: Vec<u64>,
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

    fn warned(&self, expected: &str) -> bool {
        let mut events = self.events.iter();
        events.any(|event| matches!(event, RunEvent::Warning { code, .. } if code == expected))
    }
}

/// Trains in micro-batches of 2 with these failures.
fn trained(faults: Vec<ScheduledFault>) -> Trained {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("birds");
    write_noise_images(&images, 6, SIDE);
    let mut script = String::new();
    for line in 0..2000 {
        let at_ms = 250 * line;
        writeln!(
            script,
            r#"{{"at_ms":{at_ms},"total_bytes":16000000000,"others_bytes":1000000000}}"#
        )
        .unwrap();
    }
    let path = folder.path().join("script");
    std::fs::write(&path, script).unwrap();
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
    let plan = Plan::check(&config, &inspection).unwrap();
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
    let (mut events, mut dispatches) = (Vec::new(), Vec::new());
    let outcome = trainer::start(plan, inspection, &run, context, &mut |event| {
        if matches!(event, RunEvent::Step { .. }) {
            dispatches.push(injection.dispatches());
        }
        events.push(event.clone());
    });
    Trained {
        outcome,
        events,
        dispatches,
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
        let runs = disturbed(fault, &calm, 12);
        for run in &runs {
            let outcome = run.outcome.as_ref().unwrap();
            assert_eq!(outcome.step, STEPS, "{fault:?}");
            assert_eq!(run.losses(), calm.losses(), "{fault:?}");
        }
        let last = &runs[runs.len() - 1];
        assert!(last.warned("device_failed"), "{fault:?}: the update failed");
        if [Fault::SubmissionsIgnored, Fault::Exception].contains(&fault) {
            assert!(runs.iter().all(|run| run.warned("device_failed")));
        } else {
            assert!(
                runs.iter().any(|run| run.warned("step_repeated")),
                "{fault:?}"
            );
        }
    }
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
