//! An image whose loss is not finite is found among the others and named by its file.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{self, SIDE, train_state, whole};
use candle_core::{DType, Device};
use dataset::{InspectOptions, inspect_images};
use runlog::{Augmentation, DeviceChoice, RunConfig};
use std::path::Path;
use tape::Cancel;
use trainer::Plan;
use trainer::internals::{EffectiveBatch, ImageLoader, PrefetchOptions, TrainLoader, TrainState};

/// Draws two classes of gray images. They are so close to the usual mean that their normalized
/// values are small; one image is white.
fn draw(folder: &Path) {
    for class in ["jay", "owl"] {
        std::fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..4 {
            let white = (class, number) == ("owl", 2);
            let color = image::Rgb(if white { [255; 3] } else { [124, 116, 104] });
            let image = image::RgbImage::from_pixel(SIDE as u32, SIDE as u32, color);
            let path = folder.join(class).join(format!("{number}.png"));
            image.save(path).unwrap();
        }
    }
}

/// A vision transformer whose first weights are so large that only small inputs stay finite.
fn overflowing(plan: &Plan) -> TrainState {
    let mut train_state = train_state(plan);
    let place = (0..train_state.parameters.len())
        .find(|&index| train_state.parameters.at(index).name == "patch.weight")
        .unwrap();
    let weight = (&train_state.parameters.at(place).tensor * 1e38).unwrap();
    train_state.parameters.set(place, weight).unwrap();
    train_state
}

#[test]
fn the_image_with_a_non_finite_loss_is_named() {
    let folder = tempfile::tempdir().unwrap();
    draw(folder.path());
    let config = RunConfig {
        model: Some("vit_micro".to_owned()),
        image_size: Some(SIDE as u32),
        augment: Some(Augmentation::None),
        device: Some(DeviceChoice::Cpu),
        effective_batch: Some(8),
        ..RunConfig::default()
    };
    let options = InspectOptions {
        held_out_fraction: 0.0,
        ..InspectOptions::default()
    };
    let inspection = inspect_images(folder.path(), &options, &|_| {}).unwrap();
    let plan = Plan::resolve(&config, &inspection).unwrap();
    let mut feed = ImageLoader::start(&plan, &inspection, PrefetchOptions::new(&plan, 1, 0), 0);
    let train_state = overflowing(&plan);
    let mut batch = EffectiveBatch::new(feed.begin(0));
    assert!(batch.pending.deliver(feed.fetch(8)).is_empty());
    for _ in 0..4 {
        let task = train_state.forward_context(Cancel::default());
        let result = task.gradients(batch.pending.micro_batch(2)).unwrap();
        batch.add(result).unwrap();
    }
    let whole = batch.finish().unwrap();
    assert!(!whole.loss.is_finite());
    let file = whole.offending_sample().and_then(|index| feed.file(index));
    assert_eq!(file, Some(Path::new("owl/2.png")));
}

#[test]
fn no_image_is_named_if_every_loss_is_non_finite() {
    let plan = support::plan(
        trainer::ModelId::VIT_MICRO,
        trainer::OptimizerKind::AdamW,
        DType::F32,
        1,
    );
    let train_state = overflowing(&plan);
    assert!(train_state.device().same_device(&Device::Cpu));
    let batch = whole(
        &train_state.forward_context(Cancel::default()),
        &support::samples(3, 1),
        &[2, 1],
    );
    assert_eq!(
        (batch.not_finite.len(), batch.offending_sample()),
        (3, None)
    );
}
