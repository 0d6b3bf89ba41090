//! The defaults of a plan for a dataset of images, labeled texts or documents. Reads no file.

mod image_recipe;
mod texts;

use super::setting_errors::{find_by_name, invalid_setting};
use super::{Augmentation, Compression, ConversationOptions};
use crate::error::{Result, TrainError};
use dataset::{
    Class, DEFAULT_SEED, DetectedDataset, ImageInspection, Split, SplitKind, TargetColumn, Task,
    TextInspection,
};
use image_recipe::ImageRecipe;
use models::{ModelId, Pretrained};
use runlog::{ClassWeights, MixChoice, RunConfig, TaskChoice};
use std::path::PathBuf;
use texts::texts;

pub(crate) use texts::{MOST_TEXT_BYTES_IN_MEMORY, is_longest_default};

/// A borrowed inspection of a dataset folder.
#[derive(Debug, Clone, Copy)]
pub enum DatasetRef<'a> {
    /// Images.
    Images(&'a ImageInspection),
    /// Labeled texts, or documents.
    Texts(&'a TextInspection),
}

impl<'a> From<&'a ImageInspection> for DatasetRef<'a> {
    fn from(found: &'a ImageInspection) -> Self {
        DatasetRef::Images(found)
    }
}

impl<'a> From<&'a TextInspection> for DatasetRef<'a> {
    fn from(found: &'a TextInspection) -> Self {
        DatasetRef::Texts(found)
    }
}

impl<'a> From<&'a DetectedDataset> for DatasetRef<'a> {
    fn from(found: &'a DetectedDataset) -> Self {
        match found {
            DetectedDataset::Images(found) => DatasetRef::Images(found),
            DetectedDataset::Texts(found) => DatasetRef::Texts(found),
        }
    }
}

/// What a plan takes from its dataset, and the defaults for it.
pub(super) struct DatasetDefaults {
    pub folder: PathBuf,
    pub name: String,
    pub model: ModelId,
    pub input_size: u32,
    pub classes: Vec<String>,
    pub columns: Vec<TargetColumn>,
    pub class_weights: Option<Vec<f64>>,
    pub train_samples: u64,
    /// Tokens of all training samples, about; 0 for images.
    pub train_tokens: u64,
    pub held_out_samples: u64,
    pub texts_bytes: u64,
    pub seed: u64,
    pub effective_batch: u32,
    pub epochs: u64,
    /// The most samples that a run of the default length processes.
    pub max_samples_seen: Option<u64>,
    pub label_smoothing: f64,
    pub augment: Augmentation,
    pub mix: MixChoice,
    pub ema_decay: Option<f64>,
    pub conversations: Option<ConversationOptions>,
    pub preference_beta: Option<f64>,
    pub compression: Option<Compression>,
}

/// Samples processed in a default run: small datasets get more epochs.
const SAMPLES_SEEN: u64 = 30_000;
/// Classes are unbalanced if the largest has this many times the training samples of another.
const UNBALANCED: u64 = 10;
/// Training samples of a class from which it counts for this.
const LEAST_COUNTED: u32 = 5;
/// Default side of images with regression targets, in pixels.
const REGRESSION_SIDE: u32 = 224;
/// Smallest side of images, in pixels.
const MIN_SIDE: u32 = 16;

impl DatasetRef<'_> {
    /// The task that the dataset is detected as.
    pub fn task(self) -> Task {
        match self {
            DatasetRef::Images(_) => Task::ImageClassification,
            DatasetRef::Texts(found) => found.task,
        }
    }

    /// The tasks that the dataset can be used for, the detected one first.
    pub fn tasks(self) -> Vec<Task> {
        match self.task() {
            Task::LanguageModel if !self.has_conversations() => {
                vec![Task::LanguageModel, Task::TokenCompression]
            }
            task => vec![task],
        }
    }

    fn has_conversations(self) -> bool {
        matches!(self, DatasetRef::Texts(found) if found.has_conversations())
    }

    /// The task that a config asks for: the detected one, unless it names another.
    ///
    /// # Errors
    /// The dataset cannot be used for the named task.
    pub(super) fn configured_task(self, config: &RunConfig) -> Result<Task> {
        let asked = config.task.map_or(self.task().name(), TaskChoice::name);
        let tasks = self.tasks();
        let found = tasks.iter().find(|task| task.name() == asked);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = tasks.iter().map(|task| task.name()).collect();
            let held = if self.has_conversations() {
                "conversations"
            } else {
                self.task().data_noun()
            };
            let allowed = format!(
                "this folder holds {held}, so the task can only be {}",
                names.join(" or ")
            );
            invalid_setting("task", asked, allowed)
        })
    }

    /// Refuses a dataset that cannot be trained on.
    pub(super) fn expect_trainable(self) -> Result<()> {
        let refusal = match self {
            DatasetRef::Images(found) => &found.refusal,
            DatasetRef::Texts(found) => &found.refusal,
        };
        match refusal {
            Some(sentence) => Err(TrainError::NotTrainable {
                message: sentence.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The defaults of a plan on a device of this `kind`.
    ///
    /// # Errors
    /// A setting of the config does not work for this dataset.
    pub(super) fn defaults(
        self,
        config: &RunConfig,
        kind: crate::DeviceKind,
        pretrained: Option<&Pretrained>,
    ) -> Result<DatasetDefaults> {
        match self {
            DatasetRef::Images(found) => images(config, found, kind, pretrained),
            DatasetRef::Texts(found) => match config.dev_samples {
                Some(limit) => {
                    let seed = config.seed.unwrap_or(seed(found.split));
                    let limited = found.clone().limited(seed, limit as usize);
                    texts(config, &limited, kind, pretrained)
                }
                None => texts(config, found, kind, pretrained),
            },
        }
    }
}

fn seed(split: SplitKind) -> u64 {
    match split {
        SplitKind::Seeded { seed, .. } => seed,
        SplitKind::Given => DEFAULT_SEED,
    }
}

fn images(
    config: &RunConfig,
    found: &ImageInspection,
    kind: crate::DeviceKind,
    pretrained: Option<&Pretrained>,
) -> Result<DatasetDefaults> {
    let models: Vec<_> = ModelId::image_models().map(|m| (m.name(), m)).collect();
    let named = config.model.as_deref().unwrap_or("convnet");
    let model = match pretrained {
        Some(pretrained) => pretrained_model(config, pretrained)?,
        None => find_by_name("model", named, &models)?,
    };
    let side = match pretrained.map(Pretrained::input_size) {
        Some(size) => (size.default, size.multiple),
        None => (default_side(found, model), model.input_multiple()),
    };
    let all = found.count(Split::Train);
    let train_samples = config.dev_samples.map_or(all, |limit| limit.min(all));
    refuse_settings_of_texts(config, found)?;
    let effective_batch = match kind {
        crate::DeviceKind::Metal => 64,
        crate::DeviceKind::Cuda => 32,
        _ => 16,
    };
    let recipe = ImageRecipe::new(config, found, train_samples, effective_batch);
    let recipe = pretrained.is_none().then_some(recipe);
    Ok(DatasetDefaults {
        folder: found.folder.clone(),
        name: found.name.clone(),
        model,
        input_size: image_size(config.image_size, model, side)?,
        classes: found.classes.iter().map(|c| c.name.clone()).collect(),
        columns: found.targets.clone(),
        class_weights: class_weights(config, &found.classes),
        train_samples,
        train_tokens: 0,
        held_out_samples: found.count(Split::HeldOut),
        texts_bytes: 0,
        seed: seed(found.split),
        effective_batch,
        epochs: recipe.map_or_else(
            || (SAMPLES_SEEN / train_samples.max(1)).clamp(3, 30),
            |recipe| recipe.epochs,
        ),
        max_samples_seen: None,
        label_smoothing: 0.1,
        augment: match (recipe, &found.mirror_refusal) {
            (Some(recipe), _) => recipe.augment,
            (None, Some(_)) => Augmentation::NoMirror,
            (None, None) => Augmentation::Standard,
        },
        mix: recipe.map_or(MixChoice::None, |recipe| recipe.mix),
        ema_decay: recipe.and_then(|recipe| recipe.ema_decay),
        conversations: None,
        preference_beta: None,
        compression: None,
    })
}

/// The default side of images for a network that starts from nothing, in pixels: the network's own.
/// Regression targets often depend on details, so their images are larger. Enlarging an image adds
/// time but no detail, so the side is at most the smallest one that the network accepts and that
/// covers the typical image.
fn default_side(found: &ImageInspection, model: ModelId) -> u32 {
    let usual = if found.targets.is_empty() {
        model.default_input_size()
    } else {
        REGRESSION_SIDE
    };
    let own = found.typical_size.map(|(width, height)| width.min(height));
    let own = own.map(|side| side.max(MIN_SIDE).next_multiple_of(model.input_multiple()));
    own.map_or(usual, |own| own.min(usual))
}

/// The model kind of pretrained weights.
///
/// # Errors
/// The config asks for another model.
fn pretrained_model(config: &RunConfig, pretrained: &Pretrained) -> Result<ModelId> {
    let family = pretrained.family();
    let asked = config.model.as_deref().unwrap_or(family.name());
    if asked == family.name() {
        return Ok(ModelId::Pretrained(family));
    }
    let allowed = format!(
        "this setting cannot be combined with the pretrained weights of a {}; remove this setting or --from",
        family.label()
    );
    Err(invalid_setting("model", asked, allowed))
}

/// Balanced class weights, if the config asks for them or leaves them open and the classes are
/// unbalanced: `N / (K n)` for a class with n of N training samples in K classes. The mean over the
/// samples is 1.
fn class_weights(config: &RunConfig, classes: &[Class]) -> Option<Vec<f64>> {
    let is_balanced = match config.class_weights {
        Some(choice) => choice == ClassWeights::Balanced,
        None => are_unbalanced(classes),
    };
    if !is_balanced {
        return None;
    }
    let all: u32 = classes.iter().map(|class| class.train).sum();
    let mean = f64::from(all) / classes.len().max(1) as f64;
    let weight = |class: &Class| mean / f64::from(class.train.max(1));
    Some(classes.iter().map(weight).collect())
}

/// Whether a class has a tenth of the training samples of the largest class, or fewer. A class with
/// hardly any samples does not count: it may be a mistake.
fn are_unbalanced(classes: &[Class]) -> bool {
    let counts = || classes.iter().map(|class| class.train);
    let largest = counts().max().unwrap_or(0);
    let smallest = counts().filter(|count| *count >= LEAST_COUNTED).min();
    smallest.is_some_and(|smallest| u64::from(largest) >= UNBALANCED * u64::from(smallest))
}

/// Refuses settings that do not apply to images.
fn refuse_settings_of_texts(config: &RunConfig, found: &ImageInspection) -> Result<()> {
    let foreign = "this setting is for texts; remove it for images";
    refuse("loss_on", config.loss_on, foreign)?;
    refuse("packing", config.packing, foreign)?;
    refuse("length_buckets", config.length_buckets, foreign)?;
    refuse("preference_beta", config.preference_beta, foreign)?;
    refuse("tokens", config.tokens, foreign)?;
    refuse(
        "effective_batch_tokens",
        config.effective_batch_tokens,
        "images have no tokens; set --effective-batch instead",
    )?;
    refuse("vocabulary", config.vocabulary, foreign)?;
    refuse("policy", config.policy.as_ref(), foreign)?;
    refuse("neighbors", config.neighbors, foreign)?;
    refuse("text_column", config.text_column.as_ref(), foreign)?;
    refuse("token_dropout", config.token_dropout, foreign)?;
    if found.classes.is_empty() {
        let none = "these images have no classes; remove this setting";
        refuse("class_weights", chosen_class_weights(config), none)?;
    }
    Ok(())
}

/// The class weights that a config asks for. A saved config may say that there are none.
fn chosen_class_weights(config: &RunConfig) -> Option<ClassWeights> {
    config
        .class_weights
        .filter(|choice| *choice != ClassWeights::None)
}

/// Refuses a setting that does not apply to this dataset.
fn refuse(key: &'static str, value: Option<impl ToString>, why: &str) -> Result<()> {
    match value {
        Some(value) => Err(invalid_setting(key, value.to_string(), why)),
        None => Ok(()),
    }
}

/// The image size: `asked`, or the model's default. `default` is a pair of the default and what the
/// size must be a multiple of.
fn image_size(asked: Option<u32>, model: ModelId, default: (u32, u32)) -> Result<u32> {
    let (default, multiple) = default;
    let size = asked.unwrap_or(default);
    if !size.is_multiple_of(multiple) {
        let allowed = format!(
            "{} needs an image size that is a multiple of {multiple}, for instance {}",
            model.label(),
            size.next_multiple_of(multiple)
        );
        return Err(invalid_setting("image_size", size, allowed));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(counts: &[u32]) -> Vec<Class> {
        let names = counts.iter().enumerate();
        let class = |(number, train): (usize, &u32)| Class {
            name: format!("class {number}"),
            train: *train,
            held_out: 0,
            test: 0,
        };
        names.map(class).collect()
    }

    #[test]
    fn rare_classes_get_more_weight_if_one_has_a_tenth_of_the_samples_of_another() {
        let open = RunConfig::default();
        let weights = |config: &RunConfig, counts: &[u32]| class_weights(config, &classes(counts));
        assert_eq!(weights(&open, &[99, 50, 10]), None);
        let found = weights(&open, &[100, 40, 10]);
        assert_eq!(found, Some(vec![0.5, 1.25, 5.0]));
        assert_eq!(weights(&open, &[100, 4]), None, "it may be a mistake");
        assert_eq!(weights(&open, &[0, 0]), None);
        assert_eq!(weights(&open, &[]), None);
        let chosen = |choice| RunConfig {
            class_weights: Some(choice),
            ..RunConfig::default()
        };
        assert_eq!(weights(&chosen(ClassWeights::None), &[100, 10]), None);
        assert!(weights(&chosen(ClassWeights::Balanced), &[100, 99]).is_some());
    }
}
