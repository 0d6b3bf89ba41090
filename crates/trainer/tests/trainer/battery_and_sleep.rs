//! A run on battery: it rests, saves at low battery and before the machine sleeps, and
//! computes the same.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::noise_images::write_noise_images;
use dataset::{ImageInspection, InspectOptions};
use pressure::{
    BeforeSleep, Change, PowerSource, PowerState, ScriptedPower, ScriptedSleep, SleepWatch,
};
use runlog::{
    CheckpointInterval, CheckpointReason, DeviceChoice, PowerPolicyChoice, RunConfig, RunEvent,
    RunFolder, RunStore,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use trainer::internals::{Activity, current_activity};
use trainer::{Control, Machine, MemoryScript, Plan, Request, RunContext, ScriptBy};

fn plugged_in() -> Box<dyn PowerSource> {
    Box::new(ScriptedPower::new(vec![PowerState::default()]))
}

fn low_battery() -> Box<dyn PowerSource> {
    Box::new(ScriptedPower::new(vec![PowerState {
        on_battery: Some(true),
        charge_fraction: Some(0.04),
        ..PowerState::default()
    }]))
}

/// Trains six steps on a machine with this power, with `requests` waiting: all events.
fn events(
    power: fn() -> Box<dyn PowerSource>,
    courtesy: PowerPolicyChoice,
    requests: &[Request],
) -> Vec<RunEvent> {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("birds");
    write_noise_images(&images, 6, 16);
    let config = RunConfig {
        folder: Some(images.clone()),
        image_size: Some(16),
        effective_batch: Some(4),
        micro_batch: Some(2),
        steps: Some(6),
        device: Some(DeviceChoice::Cpu),
        threads: Some(2),
        courtesy: Some(courtesy),
        ..RunConfig::default()
    };
    let inspection = dataset::inspect_images(&images, &InspectOptions::default(), &|_| {}).unwrap();
    let plan = Plan::resolve(&config, &inspection).unwrap();
    let run: RunFolder = RunStore::open(folder.path().join("runs"))
        .create("birds")
        .unwrap();
    let context = RunContext {
        machine: Machine {
            power,
            ..Machine::default()
        },
        ..RunContext::default()
    };
    requests
        .iter()
        .for_each(|request| context.control.send(*request));
    let mut events = Vec::new();
    trainer::start(plan, inspection, &run, context, &mut |event| {
        events.push(event.clone());
    })
    .unwrap();
    events
}

fn losses(events: &[RunEvent]) -> Vec<f64> {
    let loss = |event: &RunEvent| match event {
        RunEvent::Step { loss, .. } => Some(*loss),
        _ => None,
    };
    events.iter().filter_map(loss).collect()
}

fn warnings(events: &[RunEvent]) -> Vec<&str> {
    fn code(event: &RunEvent) -> Option<&str> {
        match event {
            RunEvent::Warning { code, .. } => Some(code),
            _ => None,
        }
    }
    events.iter().filter_map(code).collect()
}

fn saved_for_power(events: &[RunEvent]) -> usize {
    let is_power = |event: &&RunEvent| {
        matches!(
            event,
            RunEvent::Checkpoint {
                reason: CheckpointReason::Power,
                ..
            }
        )
    };
    events.iter().filter(is_power).count()
}

#[test]
fn on_battery_a_training_rests_saves_and_computes_the_same() {
    let usual = events(plugged_in, PowerPolicyChoice::Auto, &[]);
    assert_eq!(warnings(&usual), [""; 0]);
    assert_eq!(saved_for_power(&usual), 0);
    let on_battery = events(low_battery, PowerPolicyChoice::Auto, &[]);
    assert_eq!(warnings(&on_battery), ["courtesy", "battery_low"]);
    assert_eq!(saved_for_power(&on_battery), 1);
    assert_eq!(losses(&on_battery).len(), 6);
    assert_eq!(losses(&on_battery), losses(&usual));
}

#[test]
fn without_courtesy_only_the_low_battery_is_reported() {
    let full_speed = events(low_battery, PowerPolicyChoice::Off, &[]);
    assert_eq!(warnings(&full_speed), ["battery_low"]);
    let asked = events(plugged_in, PowerPolicyChoice::Always, &[]);
    assert_eq!(warnings(&asked), ["courtesy"]);
}

#[test]
fn a_machine_that_is_about_to_sleep_gets_a_checkpoint_first() {
    let requests = [Request::CheckpointBeforeSleep];
    let slept = events(plugged_in, PowerPolicyChoice::Auto, &requests);
    assert_eq!(saved_for_power(&slept), 1);
    assert_eq!(losses(&slept).len(), 6, "the training goes on");
}

/// Stops a training, also if the test fails.
struct StopOnDrop(Control);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send(Request::Stop);
    }
}

/// A training in `folder` that does not end by itself. No checkpoint is due, and no evaluation.
fn endless(folder: &Path) -> (Plan, ImageInspection, RunFolder) {
    let images = folder.join("birds");
    write_noise_images(&images, 6, 16);
    let config = RunConfig {
        folder: Some(images.clone()),
        image_size: Some(16),
        effective_batch: Some(4),
        steps: Some(30_000),
        checkpoint_every: Some(CheckpointInterval::Steps(30_000)),
        evaluate_every_epochs: Some(100_000),
        max_suspended_minutes: Some(100_000),
        command_buffer_ms: Some(25),
        device: Some(DeviceChoice::Cpu),
        threads: Some(2),
        ..RunConfig::default()
    };
    let inspection = dataset::inspect_images(&images, &InspectOptions::default(), &|_| {}).unwrap();
    let plan = Plan::resolve(&config, &inspection).unwrap();
    let runs = RunStore::open(folder.join("runs"));
    (plan, inspection, runs.create("birds").unwrap())
}

/// Trains on a machine, lets it sleep after the event that `is_time` chooses, and stops the run.
/// Returns the events until the machine could sleep, and the steps of the checkpoints on disk then.
fn sleeps_during(
    sleep: &'static ScriptedSleep,
    machine: impl FnOnce(&Path) -> Machine,
    is_time: impl Fn(&RunEvent, &Control) -> bool,
) -> (Vec<RunEvent>, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let (plan, inspection, run) = endless(folder.path());
    let context = RunContext {
        machine: machine(folder.path()),
        ..RunContext::default()
    };
    let control = context.control.clone();
    let (sent, received) = channel();
    std::thread::scope(|scope| {
        let run = &run;
        let training = scope.spawn(move || {
            trainer::start(plan, inspection, run, context, &mut |event| {
                // The test has seen enough.
                let _ = sent.send(event.clone());
            })
        });
        let stop = StopOnDrop(control.clone());
        let mut events = Vec::new();
        loop {
            let event = received.recv().expect("the training goes on");
            let is_now = is_time(&event, &control);
            events.push(event);
            if is_now {
                break;
            }
        }
        assert!(sleep.sleep(), "the run watches the machine");
        let saved = run.checkpoints().unwrap();
        events.extend(received.try_iter());
        drop(stop);
        training.join().unwrap().unwrap();
        assert!(!sleep.sleep(), "the run has ended");
        (events, saved.iter().map(|saved| saved.step).collect())
    })
}

/// A machine that is plugged in, with enough memory.
fn calm(watch: fn(BeforeSleep) -> Option<Box<dyn SleepWatch>>) -> Machine {
    Machine {
        power: plugged_in,
        sleep: watch,
        ..Machine::default()
    }
}

/// Step of the checkpoint that was saved for the machine's sleep.
fn step_before_sleep(events: &[RunEvent]) -> Option<u64> {
    events.iter().find_map(|event| match event {
        RunEvent::Checkpoint {
            step,
            reason: CheckpointReason::Power,
            ..
        } => Some(*step),
        _ => None,
    })
}

/// Writes a script of the memory that other apps use, one line per decision: little for 20 lines,
/// all of it for the next lines, but at most for `full` of them, and then little again.
fn memory_script(folder: &Path, full: usize) -> PathBuf {
    let line = |number: usize, others_bytes: u64| {
        let at_ms = 5_000 * number;
        format!(
            "{{\"at_ms\":{at_ms},\"total_bytes\":8000000000,\"others_bytes\":{others_bytes}}}\n"
        )
    };
    // The last line holds from then on.
    let lines = 20 + full.min(20) + 1;
    let text: String = (0..lines)
        .map(|number| {
            let is_full = (20..20_usize.saturating_add(full)).contains(&number);
            line(
                number,
                if is_full {
                    8_000_000_000
                } else {
                    1_000_000_000
                },
            )
        })
        .collect();
    let path = folder.join("script");
    std::fs::write(&path, text).unwrap();
    path
}

fn changed(event: &RunEvent, to: Change) -> bool {
    matches!(event, RunEvent::Decision { decision, .. } if decision.change == to)
}

#[test]
fn the_machine_sleeps_when_the_checkpoint_is_on_disk() {
    static SLEEP: ScriptedSleep = ScriptedSleep::new();
    let machine = |_: &Path| calm(|before_sleep| SLEEP.watch(before_sleep));
    let (events, saved) = sleeps_during(&SLEEP, machine, |event, _| {
        matches!(event, RunEvent::Step { .. })
    });
    let step = step_before_sleep(&events).expect("it was saved before the machine slept");
    assert!(step > 0 && saved.contains(&step), "{step} {saved:?}");
}

#[test]
fn a_paused_training_is_on_disk_before_the_machine_sleeps() {
    static SLEEP: ScriptedSleep = ScriptedSleep::new();
    let machine = |_: &Path| calm(|before_sleep| SLEEP.watch(before_sleep));
    let (events, saved) = sleeps_during(&SLEEP, machine, |event, control| {
        if matches!(event, RunEvent::Step { step: 1, .. }) {
            control.send(Request::Pause);
        }
        changed(event, Change::Pause)
    });
    let step = step_before_sleep(&events).expect("it was saved before the machine slept");
    assert!(step > 0 && saved.contains(&step), "{step} {saved:?}");
    let paused = events
        .iter()
        .position(|event| changed(event, Change::Pause));
    let after = &events[paused.expect("it paused")..];
    assert_eq!(losses(after), [0.0; 0], "it is still paused");
}

#[test]
fn a_paused_training_is_saved_when_the_battery_runs_low() {
    static PAUSED: AtomicBool = AtomicBool::new(false);
    /// Plugged in until the training is paused, and then on an almost empty battery.
    struct Unplugged;
    impl PowerSource for Unplugged {
        fn read(&mut self) -> PowerState {
            let is_paused = PAUSED.load(Ordering::Relaxed);
            PowerState {
                on_battery: Some(is_paused),
                charge_fraction: Some(if is_paused { 0.04 } else { 1.0 }),
                ..PowerState::default()
            }
        }
    }
    let machine = |_: &Path| Machine {
        power: || Box::new(Unplugged),
        ..Machine::default()
    };
    let seen = activities(machine, |event, control| {
        if matches!(event, RunEvent::Step { step: 1, .. }) {
            control.send(Request::Pause);
        }
        if changed(event, Change::Pause) {
            PAUSED.store(true, Ordering::Relaxed);
        }
        matches!(
            event,
            RunEvent::Checkpoint {
                reason: CheckpointReason::Power,
                ..
            }
        )
    });
    let events: Vec<RunEvent> = seen.into_iter().map(|(event, _)| event).collect();
    assert_eq!(saved_for_power(&events), 1);
    assert_eq!(losses(&events).len(), 1, "it was paused after one step");
}

#[test]
fn a_suspended_training_is_on_disk_before_the_machine_sleeps() {
    static SLEEP: ScriptedSleep = ScriptedSleep::new();
    // Other apps take all memory after 20 decisions, and never return it.
    let machine = |folder: &Path| Machine {
        script: Some(MemoryScript {
            path: memory_script(folder, usize::MAX),
            by: ScriptBy::Decision,
        }),
        ..calm(|before_sleep| SLEEP.watch(before_sleep))
    };
    let (events, saved) =
        sleeps_during(&SLEEP, machine, |event, _| changed(event, Change::Suspend));
    let suspended = events
        .iter()
        .position(|event| changed(event, Change::Suspend));
    let after = &events[suspended.expect("it suspended")..];
    assert_eq!(losses(after), [0.0; 0], "it is still suspended");
    let written = events.iter().rev().find_map(|event| match event {
        RunEvent::Checkpoint { step, .. } => Some(*step),
        _ => None,
    });
    assert!(!saved.is_empty(), "it is on disk");
    assert_eq!(written, saved.last().copied(), "and complete");
}

/// What the training thread does at each event of a run: waits or computes. `ask` may send requests
/// and returns true if the test has seen enough.
fn activities(
    machine: impl FnOnce(&Path) -> Machine,
    mut ask: impl FnMut(&RunEvent, &Control) -> bool + Send,
) -> Vec<(RunEvent, Activity)> {
    let folder = tempfile::tempdir().unwrap();
    let (plan, inspection, run) = endless(folder.path());
    let context = RunContext {
        machine: machine(folder.path()),
        ..RunContext::default()
    };
    let control = context.control.clone();
    let mut seen = Vec::new();
    trainer::start(plan, inspection, &run, context, &mut |event| {
        // The observer runs on the training thread.
        let activity = current_activity().expect("the run has begun");
        seen.push((event.clone(), activity));
        if ask(event, &control) {
            control.send(Request::Stop);
        }
    })
    .unwrap();
    seen
}

/// Checks that the system may sleep between the change `begin` and the next step, and not during
/// the steps before and after it.
fn expect_sleep_allowed_from(begin: Change, seen: &[(RunEvent, Activity)]) {
    let is_step = |event: &RunEvent| matches!(event, RunEvent::Step { .. });
    let steps = seen.iter().filter(|(event, _)| is_step(event));
    let steps: Vec<Activity> = steps.map(|(_, activity)| *activity).collect();
    assert!(steps.len() > 2 && steps.iter().all(|activity| *activity == Activity::Computes));
    let at = seen.iter().position(|(event, _)| changed(event, begin));
    let after = &seen[at.expect("it happened") + 1..];
    let readings = after.iter().take_while(|(event, _)| !is_step(event));
    let readings = readings.filter(|(event, _)| matches!(event, RunEvent::Memory { .. }));
    let readings: Vec<Activity> = readings.map(|(_, activity)| *activity).collect();
    assert!(readings.contains(&Activity::Waits), "{readings:?}");
}

#[test]
fn the_system_may_sleep_while_a_training_is_paused() {
    let mut paused = false;
    let seen = activities(
        |_| Machine {
            power: plugged_in,
            ..Machine::default()
        },
        |event, control| {
            match event {
                RunEvent::Step { step: 1, .. } => control.send(Request::Pause),
                RunEvent::Memory { .. } if paused => control.send(Request::Resume),
                _ => {}
            }
            paused |= changed(event, Change::Pause);
            paused && matches!(event, RunEvent::Step { step: 4.., .. })
        },
    );
    expect_sleep_allowed_from(Change::Pause, &seen);
}

#[test]
fn the_system_may_sleep_while_a_training_is_suspended() {
    let mut suspended = false;
    let seen = activities(
        |folder| Machine {
            script: Some(MemoryScript {
                path: memory_script(folder, 12),
                by: ScriptBy::Decision,
            }),
            power: plugged_in,
            ..Machine::default()
        },
        |event, _| {
            suspended |= changed(event, Change::Suspend);
            suspended && matches!(event, RunEvent::Step { .. })
        },
    );
    expect_sleep_allowed_from(Change::Suspend, &seen);
}

#[test]
fn the_time_of_a_command_buffer_is_that_of_the_config() {
    let mut budget_ms = 0;
    activities(
        |_| Machine {
            power: plugged_in,
            ..Machine::default()
        },
        |event, _| {
            budget_ms = tape::device::command_buffer_budget().as_millis();
            matches!(event, RunEvent::Step { .. })
        },
    );
    assert_eq!(budget_ms, 25);
}
