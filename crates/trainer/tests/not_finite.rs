//! A photograph whose loss is not finite is found among the others and named by its file.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

mod support;

use candle_core::{DType, Device};
use dataset::{InspectOptions, inspect_images};
use runlog::RunConfig;
use std::path::Path;
use support::{SIDE, learner, whole};
use tape::Cancel;
use trainer::Plan;
use trainer::rooms::{Ahead, EffectiveBatch, Learner, TrainFeed};

/// Two classes of grey photographs, so close to the mean of all photographs that their values are small; one is white.
fn photographs(folder: &Path) {
    for class in ["jay", "owl"] {
        std::fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..4 {
            let white = (class, number) == ("owl", 2);
            let colour = image::Rgb(if white { [255; 3] } else { [124, 116, 104] });
            let picture = image::RgbImage::from_pixel(SIDE as u32, SIDE as u32, colour);
            let path = folder.join(class).join(format!("{number}.png"));
            picture.save(path).unwrap();
        }
    }
}

/// A vision transformer whose first weights are so large that only small values stay finite.
fn overflowing(plan: &Plan) -> Learner {
    let mut learner = learner(plan);
    let place = (0..learner.parameters.len())
        .find(|&index| learner.parameters.at(index).name == "patch.weight")
        .unwrap();
    let weight = (&learner.parameters.at(place).tensor * 1e38).unwrap();
    learner.parameters.set(place, weight).unwrap();
    learner
}

#[test]
fn a_photograph_whose_loss_is_not_finite_is_named_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    photographs(folder.path());
    let config = RunConfig {
        model: Some("vit_micro".to_owned()),
        image_size: Some(SIDE as u32),
        augment: Some("none".to_owned()),
        device: Some("cpu".to_owned()),
        effective_batch: Some(8),
        ..RunConfig::default()
    };
    let options = InspectOptions {
        held_out_fraction: 0.0,
        ..InspectOptions::default()
    };
    let inspection = inspect_images(folder.path(), &options, &|_| {}).unwrap();
    let plan = Plan::check(&config, &inspection).unwrap();
    let mut feed = TrainFeed::start(&plan, &inspection, Ahead::of(&plan, 1, 0), 0);
    let learner = overflowing(&plan);
    let mut batch = EffectiveBatch::new(feed.begin(0));
    assert!(batch.pending.deliver(feed.fetch(8)).is_empty());
    for _ in 0..4 {
        let task = learner.task(Cancel::default());
        let piece = task.gradients(batch.pending.piece(2)).unwrap();
        batch.add(piece).unwrap();
    }
    let whole = batch.whole().unwrap();
    assert!(!whole.loss.is_finite());
    let file = whole.suspect().map(|index| feed.file(index));
    assert_eq!(file, Some(Path::new("owl/2.png")));
}

#[test]
fn where_every_loss_is_gone_no_photograph_is_to_blame() {
    let plan = support::plan(
        trainer::ModelKind::VitMicro,
        trainer::OptimizerKind::AdamW,
        DType::F32,
        1,
    );
    let learner = overflowing(&plan);
    assert!(learner.device().same_device(&Device::Cpu));
    let batch = whole(
        &learner.task(Cancel::default()),
        &support::samples(3, 1),
        &[2, 1],
    );
    assert_eq!((batch.not_finite.len(), batch.suspect()), (3, None));
}
