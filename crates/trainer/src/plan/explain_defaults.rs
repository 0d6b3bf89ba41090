//! The defaults that Ebb chose for a dataset, each with its reason and the setting that changes it.

use super::dataset_defaults::is_longest_default;
use super::{Augmentation, ConversationOptions, Plan};
use dataset::{Mix, Task};
use models::hub_format::TrainedLayers;
use runlog::{RunConfig, format_count};

/// A default that depends on the data or on the weights that a run starts from.
struct DefaultChoice {
    /// What was chosen, and why, without a full stop.
    reason: String,
    /// The setting that changes it, as in "--epochs sets another number".
    hint: &'static str,
}

impl DefaultChoice {
    fn new(reason: impl Into<String>, hint: &'static str) -> Self {
        DefaultChoice {
            reason: reason.into(),
            hint,
        }
    }
}

impl Plan {
    /// A sentence for each default that depends on the data and that `asked` leaves open, with the
    /// setting that changes it.
    pub fn explain_defaults(&self, asked: &RunConfig) -> Vec<String> {
        let choices = self.default_choices(asked).into_iter();
        choices
            .map(|choice| format!("{}; {}", choice.reason, choice.hint))
            .collect()
    }

    /// Like [`Plan::explain_defaults`], without the settings of the command line.
    pub fn reasons_of_defaults(&self, asked: &RunConfig) -> Vec<String> {
        let choices = self.default_choices(asked).into_iter();
        choices
            .map(|choice| format!("{}.", choice.reason))
            .collect()
    }

    fn default_choices(&self, asked: &RunConfig) -> Vec<DefaultChoice> {
        if let Some(options) = self.conversations {
            let mut choices = self.choices_of_conversations(asked, options);
            choices.extend(self.length_choice(asked));
            choices.extend(self.rate_choice(asked));
            return choices;
        }
        let mut choices: Vec<DefaultChoice> = self.class_weight_choice(asked).into_iter().collect();
        choices.extend(self.input_choice(asked));
        choices.extend(self.vocabulary_choice(asked));
        choices.extend(self.length_choice(asked));
        choices.extend(self.rate_choice(asked));
        if self.task() == Task::ImageClassification && self.pretrained.is_none() {
            choices.extend(self.image_choices(asked));
        }
        choices
    }

    /// Why the classes have weights, if `asked` leaves them open.
    fn class_weight_choice(&self, asked: &RunConfig) -> Option<DefaultChoice> {
        let weights = self.class_weights.as_ref()?;
        if asked.class_weights.is_some() {
            return None;
        }
        let places = || 0..weights.len().min(self.classes.len());
        let by_weight = |a: &usize, b: &usize| weights[*a].total_cmp(&weights[*b]);
        let (largest, smallest) = (places().min_by(by_weight)?, places().max_by(by_weight)?);
        let reason = format!(
            "Rare classes count as much as frequent ones, because \"{}\" has {} times as many training samples as \"{}\"",
            self.classes[largest],
            format_count((weights[smallest] / weights[largest]).round() as u64),
            self.classes[smallest]
        );
        let hint = "--class-weights none switches this off";
        Some(DefaultChoice::new(reason, hint))
    }

    /// The image size, or the length of labeled texts.
    fn input_choice(&self, asked: &RunConfig) -> Option<DefaultChoice> {
        let side = self.image_side();
        if let (Some(side), None, None) = (side, asked.image_size, &self.pretrained) {
            let is_smaller = side < self.model.default_input_size();
            return is_smaller.then(|| {
                let reason =
                    format!("An image size of {side} px, because the images are no larger");
                DefaultChoice::new(reason, "--image-size sets another size")
            });
        }
        if self.task() != Task::TextClassification || asked.tokens.is_some() {
            return None;
        }
        let tokens = format_count(self.input_size.into());
        let reason = if is_longest_default(self.input_size) {
            format!(
                "At most {tokens} tokens of each text, because longer texts need more memory and time"
            )
        } else {
            format!("At most {tokens} tokens of each text, because nearly all texts are this short")
        };
        Some(DefaultChoice::new(reason, "--tokens sets another number"))
    }

    fn vocabulary_choice(&self, asked: &RunConfig) -> Option<DefaultChoice> {
        let vocabulary = self.learned_vocabulary()?;
        let is_open = self.task() == Task::TextClassification && asked.vocabulary.is_none();
        is_open.then(|| {
            let reason = format!(
                "A vocabulary of {} tokens, which Ebb learns from the training texts",
                format_count(vocabulary.into())
            );
            DefaultChoice::new(reason, "--vocabulary sets another size")
        })
    }

    /// How long the run trains, unless `asked` says so.
    fn length_choice(&self, asked: &RunConfig) -> Option<DefaultChoice> {
        if asked.epochs.is_some() || asked.steps.is_some() {
            return None;
        }
        let samples = format_count(self.train_samples);
        if self.steps < self.steps_per_epoch {
            let read = self.steps * u64::from(self.effective_batch);
            let reason = format!(
                "{} steps, which read {} of {samples} training windows, because more would take very long",
                format_count(self.steps),
                format_count(read)
            );
            let hint = "--epochs 1 reads all of them once";
            return Some(DefaultChoice::new(reason, hint));
        }
        let epochs = self.epochs();
        let passes = if epochs == 1 {
            "epoch for"
        } else {
            "epochs for"
        };
        let trained = match self.task() {
            Task::ImageClassification => "training images",
            Task::TextClassification => "training texts",
            Task::LanguageModel | Task::TokenCompression => "training windows",
        };
        let reason = format!("{} {passes} {samples} {trained}", format_count(epochs));
        Some(DefaultChoice::new(reason, "--epochs sets another number"))
    }

    /// The learning rate of pretrained weights.
    fn rate_choice(&self, asked: &RunConfig) -> Option<DefaultChoice> {
        let tuning = self.pretrained.as_ref()?.tuning();
        if asked.learning_rate.is_some() {
            return None;
        }
        let why = if tuning.adapter.is_some() {
            "only adapters are trained"
        } else {
            match tuning.trained {
                TrainedLayers::Head => "only the new head is trained",
                TrainedLayers::Last(_) => {
                    "only the last blocks of the pretrained weights are trained"
                }
                TrainedLayers::All => "the weights are pretrained",
            }
        };
        let reason = format!(
            "A learning rate of {:.1e}, because {why}",
            self.learning_rate
        );
        let hint = "--learning-rate sets another rate";
        Some(DefaultChoice::new(reason, hint))
    }

    /// The augmentation of a network that trains from random weights.
    fn image_choices(&self, asked: &RunConfig) -> Vec<DefaultChoice> {
        let mut choices = Vec::new();
        if asked.augment.is_none() && self.augment == Augmentation::Light {
            choices.push(DefaultChoice::new(
                "Ebb crops the images only a little, because the run is short",
                "--augment standard crops more",
            ));
        }
        if asked.mix.is_none() && self.mix != Mix::None {
            let each = self.train_samples / (self.classes.len() as u64).max(1);
            let reason = format!(
                "Ebb mixes pairs of images, because there are only about {} images of each class",
                format_count(each)
            );
            choices.push(DefaultChoice::new(reason, "--mix none switches this off"));
        }
        if let (None, Some(decay)) = (asked.ema_decay, self.ema_decay) {
            let reason = format!("Ebb averages the weights over the last steps with decay {decay}");
            choices.push(DefaultChoice::new(
                reason,
                "--ema-decay 0 switches this off",
            ));
        }
        choices
    }

    fn choices_of_conversations(
        &self,
        asked: &RunConfig,
        options: ConversationOptions,
    ) -> Vec<DefaultChoice> {
        let mut choices = Vec::new();
        if asked.loss_on.is_none() {
            choices.push(DefaultChoice::new(
                "Only the answers of the assistant are learned",
                "--loss-on all also learns the other messages",
            ));
        }
        if asked.tokens.is_none() {
            let reason = format!(
                "Ebb reads at most {} tokens of a conversation",
                format_count(self.input_size.into())
            );
            choices.push(DefaultChoice::new(reason, "--tokens sets another number"));
        }
        if asked.packing.is_none() && options.packs {
            choices.push(DefaultChoice::new(
                "Several conversations share a window, because most of them are short",
                "--packing off switches this off",
            ));
        }
        choices
    }
}
