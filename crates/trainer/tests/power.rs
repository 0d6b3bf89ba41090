//! A run on battery: it rests, saves at low battery and before the machine sleeps, and
//! computes the same.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use dataset::InspectOptions;
use pressure::{PowerSource, PowerState, ScriptedPower};
use runlog::{
    CheckpointReason, DeviceChoice, PowerPolicyChoice, RunConfig, RunEvent, RunFolder, RunStore,
};
use std::path::Path;
use tape::Rng;
use trainer::{Machine, Plan, Request, RunContext};

/// Two classes of noise, six images each.
fn draw(folder: &Path) {
    for (label, class) in ["jay", "owl"].into_iter().enumerate() {
        std::fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..6u32 {
            let stream = Rng::new(label as u64).at(u64::from(number));
            let image = image::RgbImage::from_fn(16, 16, |x, y| {
                let shade = stream.uniform(u64::from(16 * y + x)) * 200.0;
                image::Rgb([shade as u8, 40 * label as u8, 90])
            });
            image
                .save(folder.join(class).join(format!("{number}.png")))
                .unwrap();
        }
    }
}

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
    draw(&images);
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
    let plan = Plan::check(&config, &inspection).unwrap();
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
