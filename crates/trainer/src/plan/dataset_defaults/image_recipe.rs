//! How long and how strongly regularized an image network trains from random weights by default.
//! It depends on the number of training images.

use dataset::ImageInspection;
use runlog::{Augmentation, MixChoice, RunConfig};

/// Samples processed in a default run: small datasets get more epochs.
const SAMPLES_SEEN: u64 = 30_000;
/// Samples processed if there are few images of each class.
const SAMPLES_SEEN_FEW: u64 = 60_000;
/// Samples processed if the images are small and not mirrored, such as digits: with distorted
/// copies, a longer run hardly learns more.
const SAMPLES_SEEN_CHARACTERS: u64 = 24_000;
/// Largest side of such images in pixels.
const MAX_CHARACTER_SIDE: u32 = 32;
/// Range of the default number of epochs.
const EPOCHS: [u64; 2] = [5, 60];
/// The most epochs if there are few images of each class.
const EPOCHS_FEW: u64 = 100;
/// Training images per class below which they are few.
const FEW_PER_CLASS: u64 = 20;
/// Samples processed in a run below which images are cropped only a little: with smaller crops, a
/// short run learns less.
const SHORT_RUN: u64 = 20_000;
/// Samples processed in a run below which images are not mixed and weights are not averaged.
const MIXED_RUN: u64 = 50_000;
/// Decay of the average of the weights in long runs with few images of each class.
const EMA_DECAY: f64 = 0.995;

/// Defaults of an image network that trains from random weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ImageRecipe {
    pub epochs: u64,
    pub mix: MixChoice,
    pub ema_decay: Option<f64>,
    pub augment: Augmentation,
}

impl ImageRecipe {
    /// The recipe for `train_samples` training images of a folder. `effective_batch` is the default
    /// one.
    pub fn new(
        config: &RunConfig,
        found: &ImageInspection,
        train_samples: u64,
        effective_batch: u32,
    ) -> Self {
        let classes = found.classes.iter().filter(|class| class.train > 0).count() as u64;
        let per_class = train_samples / classes.max(1);
        let is_few = classes > 1 && found.targets.is_empty() && per_class < FEW_PER_CLASS;
        let is_small = |(width, height): (u32, u32)| width.max(height) <= MAX_CHARACTER_SIDE;
        let are_characters =
            found.mirror_refusal.is_some() && found.typical_size.is_some_and(is_small);
        let (samples_seen, most) = if is_few {
            (SAMPLES_SEEN_FEW, EPOCHS_FEW)
        } else if are_characters {
            (SAMPLES_SEEN_CHARACTERS, EPOCHS[1])
        } else {
            (SAMPLES_SEEN, EPOCHS[1])
        };
        let epochs = (samples_seen / train_samples.max(1)).clamp(EPOCHS[0], most);
        let batch = u64::from(config.effective_batch.unwrap_or(effective_batch));
        let processed = match config.steps {
            Some(steps) => steps.saturating_mul(batch),
            None => train_samples.saturating_mul(config.epochs.unwrap_or(epochs)),
        };
        let is_mixed = is_few && processed >= MIXED_RUN;
        ImageRecipe {
            epochs,
            mix: if is_mixed {
                MixChoice::Both
            } else {
                MixChoice::None
            },
            ema_decay: is_mixed.then_some(EMA_DECAY),
            augment: if found.mirror_refusal.is_some() {
                Augmentation::NoMirror
            } else if found.targets.is_empty() && processed < SHORT_RUN {
                Augmentation::Light
            } else {
                Augmentation::Standard
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataset::{Class, Ignored, SplitKind};

    /// Images of 10 classes.
    fn images(per_class: u32) -> ImageInspection {
        let class = |label: u32| Class {
            name: format!("class {label}"),
            train: per_class,
            held_out: 1,
            test: 0,
        };
        ImageInspection {
            folder: "/birds".into(),
            name: "birds".to_owned(),
            classes: (0..10).map(class).collect(),
            targets: Vec::new(),
            table: None,
            groups: None,
            bytes: 0,
            files: Vec::new(),
            skipped: Vec::new(),
            ignored: Ignored::default(),
            typical_size: None,
            refusal: None,
            mirror_refusal: None,
            notes: Vec::new(),
            held_out_copies: 0,
            split: SplitKind::Given,
            split_folders: Vec::new(),
        }
    }

    fn recipe(config: &RunConfig, found: &ImageInspection) -> ImageRecipe {
        let train_samples = found.classes.iter().map(|class| u64::from(class.train));
        ImageRecipe::new(config, found, train_samples.sum(), 16)
    }

    #[test]
    fn few_images_of_each_class_are_mixed_and_trained_for_longer() {
        let usual = recipe(&RunConfig::default(), &images(60));
        assert_eq!((usual.epochs, usual.mix), (50, MixChoice::None));
        assert_eq!(usual.ema_decay, None);
        assert_eq!(usual.augment, Augmentation::Standard);
        let few = recipe(&RunConfig::default(), &images(19));
        assert_eq!((few.epochs, few.mix), (100, MixChoice::None));
        assert_eq!(few.augment, Augmentation::Light);
        let more = ImageInspection {
            classes: [images(19).classes, images(19).classes, images(19).classes].concat(),
            ..images(0)
        };
        let more = recipe(&RunConfig::default(), &more);
        assert_eq!((more.epochs, more.mix), (100, MixChoice::Both));
        assert_eq!(more.augment, Augmentation::Standard);
        assert_eq!(more.ema_decay, Some(EMA_DECAY));
    }

    #[test]
    fn a_long_run_crops_more_and_digits_are_never_mirrored() {
        let long = RunConfig {
            epochs: Some(200),
            ..RunConfig::default()
        };
        assert_eq!(recipe(&long, &images(60)).augment, Augmentation::Standard);
        let short = RunConfig {
            steps: Some(150),
            effective_batch: Some(32),
            ..long.clone()
        };
        assert_eq!(recipe(&short, &images(60)).augment, Augmentation::Light);
        let digits = ImageInspection {
            mirror_refusal: Some("They are digits.".to_owned()),
            ..images(60)
        };
        for config in [long, short] {
            let found = recipe(&config, &digits).augment;
            assert_eq!(found, Augmentation::NoMirror);
        }
        // Small images are trained for fewer epochs.
        let epochs = |digits: &ImageInspection| recipe(&RunConfig::default(), digits).epochs;
        assert_eq!(epochs(&digits), 50);
        let small = ImageInspection {
            typical_size: Some((28, 28)),
            ..digits
        };
        assert_eq!(epochs(&small), 40);
    }
}
