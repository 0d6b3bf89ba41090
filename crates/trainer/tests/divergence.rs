//! A training that diverges: each skipped step names the gradients that were not finite, five in a
//! row end the run, and its error names a checkpoint with finite weights.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use dataset::InspectOptions;
use runlog::{RunConfig, RunEvent, RunStore};
use std::path::Path;
use tape::Rng;
use trainer::{Plan, RunContext, TrainError};

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

#[test]
fn a_diverged_run_names_its_last_valid_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("birds");
    draw(&images);
    let inspection = dataset::inspect_images(&images, &InspectOptions::default(), &|_| {}).unwrap();
    // A decay of a hundred a step turns each weight round and grows it: some twenty steps to the end of f32.
    let config = RunConfig {
        folder: Some(images),
        image_size: Some(16),
        effective_batch: Some(4),
        micro_batch: Some(4),
        steps: Some(100),
        learning_rate: Some(10.0),
        weight_decay: Some(10.0),
        device: Some("cpu".to_owned()),
        threads: Some(2),
        checkpoint_every: Some("1steps".to_owned()),
        ..RunConfig::default()
    };
    let plan = Plan::check(&config, &inspection).unwrap();
    let run = RunStore::open(folder.path().join("runs"))
        .create("birds")
        .unwrap();
    let mut events = Vec::new();
    let error = trainer::start(
        plan,
        inspection,
        &run,
        RunContext::default(),
        &mut |event| {
            events.push(event.clone());
        },
    )
    .err()
    .unwrap();
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
    assert!(
        error
            .to_string()
            .contains(&format!("the last valid checkpoint is {named}")),
        "{error}"
    );
    // It is the newest one, it is older than the row of skipped steps, and its weights are finite.
    let newest = run.checkpoints().unwrap().pop().unwrap();
    assert_eq!(newest.path, run.path.join(&named));
    assert!(newest.step + 5 <= *step + 1, "{named} at step {step}");
    let path = newest.path.join("model.safetensors");
    let weights = candle_core::safetensors::load(path, &candle_core::Device::Cpu).unwrap();
    for (name, tensor) in weights {
        let values = tape::inplace::to_f64(&tensor).unwrap();
        assert!(values.iter().all(|v| v.is_finite()), "{name}");
    }
    let skipped: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            RunEvent::Skipped {
                item: what,
                gradients,
                reason,
                ..
            } => Some((what, gradients, reason)),
            _ => None,
        })
        .collect();
    // A single step may have been skipped before the row of five.
    assert!(skipped.len() >= 4, "{}", skipped.len());
    assert!(
        skipped
            .iter()
            .any(|(what, ..)| error.to_string().contains(*what))
    );
    for (what, gradients, reason) in skipped {
        println!("{what}: {reason}");
        assert!(gradients.iter().all(|g| g.nan + g.infinite > 0) && !gradients.is_empty());
        assert!(what.contains('.'), "{what} names no layer");
        assert!(reason.contains("gradients"), "{reason}");
    }
    let last = events.last().unwrap();
    assert!(
        matches!(last, RunEvent::Failed { code, message, .. } if code == "diverged" && message.contains(&named))
    );
}
