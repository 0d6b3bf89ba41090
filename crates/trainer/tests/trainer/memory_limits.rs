//! Memory limits that the user changes while a run trains: they are recorded, a cap that would end
//! the run is refused, and the training computes the same.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use dataset::InspectOptions;
use runlog::{DeviceChoice, MemoryLimits, Run, RunConfig, RunEvent, RunStore};
use std::path::Path;
use trainer::{Plan, Request, RunContext};

const GB: u64 = 1 << 30;

fn draw(folder: &Path) {
    for (class, shade) in [("jay", 40), ("owl", 190)] {
        std::fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..6u8 {
            let pixel = image::Rgb([shade, 20 * number, 90]);
            let image = image::RgbImage::from_pixel(16, 16, pixel);
            image
                .save(folder.join(class).join(format!("{number}.png")))
                .unwrap();
        }
    }
}

/// Trains eight steps and sends each request after the step with its number: all events.
fn events(requests: &[(u64, Request)]) -> Vec<RunEvent> {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("birds");
    draw(&images);
    let config = RunConfig {
        folder: Some(images.clone()),
        image_size: Some(16),
        effective_batch: Some(4),
        steps: Some(8),
        memory_cap_fraction: Some(0.9),
        device: Some(DeviceChoice::Cpu),
        threads: Some(1),
        ..RunConfig::default()
    };
    let inspection = dataset::inspect_images(&images, &InspectOptions::default(), &|_| {}).unwrap();
    let plan = Plan::resolve(&config, &inspection).unwrap();
    let run = RunStore::open(folder.path().join("runs"))
        .create("birds")
        .unwrap();
    let context = RunContext::default();
    let control = context.control.clone();
    let mut events = Vec::new();
    trainer::start(plan, inspection, &run, context, &mut |event| {
        if let RunEvent::Step { step, .. } = event {
            let due = requests.iter().filter(|(after, _)| after == step);
            due.for_each(|(_, request)| control.send(*request));
        }
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

#[test]
fn changed_limits_are_recorded_and_the_result_stays_the_same() {
    let changed = events(&[
        (3, Request::SetMaxSystemFraction(0.93)),
        (4, Request::SetMemoryCap(Some(64 * GB))),
        (5, Request::SetMemoryCap(Some(1))),
        (6, Request::SetMemoryCap(None)),
    ]);
    let limits = changed.iter().filter_map(|event| match event {
        RunEvent::MemoryLimits {
            step,
            memory_cap_bytes,
            max_system_fraction,
            message,
            ..
        } => Some((
            *step,
            *memory_cap_bytes,
            *max_system_fraction,
            message.as_str(),
        )),
        _ => None,
    });
    let limits: Vec<_> = limits.collect();
    let [fraction, cap, none] = limits[..] else {
        panic!("three changes, not {limits:?}");
    };
    assert_eq!((fraction.0, fraction.2), (3, 0.93));
    assert!(fraction.1.is_some(), "the cap of the config still holds");
    assert!(fraction.3.starts_with("At least "), "{}", fraction.3);
    assert_eq!(cap, (4, Some(64 * GB), 0.93, "Memory cap set to 64.0 GB"));
    assert_eq!(none, (6, None, 0.93, "Memory cap removed"));
    let refused = changed.iter().find_map(|event| match event {
        RunEvent::Warning { code, message, .. } if code == "memory_cap_too_small" => Some(message),
        _ => None,
    });
    let refused = refused.expect("a cap of one byte is refused");
    assert!(
        refused.ends_with("The memory cap was not changed."),
        "{refused}"
    );

    let mut run = Run::default();
    changed.iter().for_each(|event| run.apply(event));
    let last = MemoryLimits {
        memory_cap_bytes: None,
        max_system_fraction: 0.93,
    };
    assert_eq!(run.changed_limits(), Some(last));
    let listed = run.marks().iter().filter(|mark| mark.reason == "by you");
    assert_eq!(listed.count(), 3);

    assert_eq!(losses(&changed), losses(&events(&[])));
    assert_eq!(losses(&changed).len(), 8);
}
