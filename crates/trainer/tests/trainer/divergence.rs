//! A run that diverges: each skipped step names the gradients that were not finite, five in a
//! row end the run, and its error names a checkpoint with finite weights.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::noise_images::write_noise_images;
use dataset::InspectOptions;
use runlog::{CheckpointInterval, DeviceChoice, RunConfig, RunEvent, RunFolder, RunStore};
use std::path::Path;
use trainer::{Plan, RunContext, TrainError};

/// A run that diverges. A decay factor of 100 per step flips the sign of each weight and grows it:
/// it reaches the largest f32 after about twenty steps.
fn config(images: &Path) -> RunConfig {
    RunConfig {
        folder: Some(images.to_owned()),
        image_size: Some(16),
        effective_batch: Some(4),
        micro_batch: Some(4),
        steps: Some(100),
        learning_rate: Some(10.0),
        weight_decay: Some(10.0),
        device: Some(DeviceChoice::Cpu),
        threads: Some(2),
        checkpoint_every: Some(CheckpointInterval::Steps(1)),
        ..RunConfig::default()
    }
}

/// Trains until the run fails: the error and all events.
fn diverged(images: &Path, run: &RunFolder) -> (TrainError, Vec<RunEvent>) {
    write_noise_images(images, 6, 16);
    let inspection = dataset::inspect_images(images, &InspectOptions::default(), &|_| {}).unwrap();
    let plan = Plan::resolve(&config(images), &inspection).unwrap();
    let (context, mut events) = (RunContext::default(), Vec::new());
    let outcome = trainer::start(plan, inspection, run, context, &mut |event| {
        events.push(event.clone());
    });
    (outcome.err().unwrap(), events)
}

/// The checkpoint is the newest one, older than the row of five skipped steps, and its weights are
/// finite.
fn check_checkpoint(run: &RunFolder, named: &str, step: u64) {
    let newest = run.checkpoints().unwrap().pop().unwrap();
    assert_eq!(newest.path, run.path.join(named));
    assert!(newest.step + 5 <= step + 1, "{named} at step {step}");
    let path = newest.path.join("model.safetensors");
    let weights = candle_core::safetensors::load(path, &candle_core::Device::Cpu).unwrap();
    for (name, tensor) in weights {
        let values = tape::inplace::to_f64(&tensor).unwrap();
        assert!(values.iter().all(|v| v.is_finite()), "{name}");
    }
}

/// Each skipped step names a layer and its gradients, and the error names one of those layers.
fn check_skipped(events: &[RunEvent], error: &TrainError) {
    let skipped: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            RunEvent::Skipped {
                item,
                gradients: Some(gradients),
                reason,
                ..
            } => Some((item, gradients, reason)),
            _ => None,
        })
        .collect();
    // A single step may have been skipped before the row of five.
    assert!(skipped.len() >= 4, "{}", skipped.len());
    let message = error.to_string();
    assert!(skipped.iter().any(|(item, ..)| message.contains(*item)));
    for (item, gradients, reason) in skipped {
        println!("{item}: {reason}");
        assert!(gradients.iter().all(|g| g.nan + g.infinite > 0) && !gradients.is_empty());
        assert!(item.contains('.'), "{item} names no layer");
        assert!(reason.contains("gradients"), "{reason}");
    }
}

#[test]
fn a_diverged_run_names_its_last_valid_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunStore::open(folder.path().join("runs"))
        .create("birds")
        .unwrap();
    let (error, events) = diverged(&folder.path().join("birds"), &run);
    let TrainError::Diverged {
        step,
        checkpoint,
        times,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(*times, 5);
    let named = checkpoint.clone().unwrap();
    let sentence = format!("the last valid checkpoint is {named}");
    assert!(error.to_string().contains(&sentence), "{error}");
    check_checkpoint(&run, &named, *step);
    check_skipped(&events, &error);
    let last = events.last().unwrap();
    assert!(
        matches!(last, RunEvent::Failed { code, message, .. } if code == "diverged" && message.contains(&named))
    );
}
