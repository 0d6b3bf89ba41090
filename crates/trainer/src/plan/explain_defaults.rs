//! The defaults that Ebb chose for images, each with its reason and the setting that changes it.

use super::{Augmentation, ConversationOptions, Plan};
use dataset::{Mix, Task};
use runlog::{RunConfig, counted, format_count};

impl Plan {
    /// A sentence for each default that depends on the data and that `asked` leaves open.
    pub fn explain_defaults(&self, asked: &RunConfig) -> Vec<String> {
        if let Some(options) = self.conversations {
            return self.explain_conversations(asked, options);
        }
        let reason = self.explain_class_weights(asked);
        let reason = reason.map(|reason| {
            let reason = reason.trim_end_matches('.');
            format!("{reason}; --class-weights none switches this off")
        });
        let mut sentences: Vec<String> = reason.into_iter().collect();
        if self.task() != Task::ImageClassification || self.pretrained.is_some() {
            return sentences;
        }
        if asked.image_size.is_none() && self.input_size < self.model.default_input_size() {
            sentences.push(format!(
                "An image size of {} px, because the images are no larger; --image-size sets another size",
                self.input_size
            ));
        }
        if asked.epochs.is_none() && asked.steps.is_none() {
            sentences.push(format!(
                "{} for {}; --epochs sets another number",
                counted(self.epochs(), "epoch", "epochs"),
                counted(self.train_samples, "training image", "training images")
            ));
        }
        if asked.augment.is_none() && self.augment == Augmentation::Light {
            let reason = "Ebb crops the images only a little, because the run is short; --augment standard crops more";
            sentences.push(reason.to_owned());
        }
        if asked.mix.is_none() && self.mix != Mix::None {
            let each = self.train_samples / (self.classes.len() as u64).max(1);
            sentences.push(format!(
                "Ebb mixes pairs of images, because there are only about {} images of each class; --mix none switches this off",
                format_count(each)
            ));
        }
        if let (None, Some(decay)) = (asked.ema_decay, self.ema_decay) {
            sentences.push(format!(
                "Ebb averages the weights over the last steps with decay {decay}; --ema-decay 0 switches this off"
            ));
        }
        sentences
    }

    /// Why the classes have weights, if `asked` leaves them open.
    pub fn explain_class_weights(&self, asked: &RunConfig) -> Option<String> {
        let weights = self.class_weights.as_ref()?;
        if asked.class_weights.is_some() {
            return None;
        }
        let places = || 0..weights.len().min(self.classes.len());
        let by_weight = |a: &usize, b: &usize| weights[*a].total_cmp(&weights[*b]);
        let (largest, smallest) = (places().min_by(by_weight)?, places().max_by(by_weight)?);
        Some(format!(
            "Rare classes count as much as frequent ones, because \"{}\" has {} times as many training samples as \"{}\".",
            self.classes[largest],
            format_count((weights[smallest] / weights[largest]).round() as u64),
            self.classes[smallest]
        ))
    }

    fn explain_conversations(
        &self,
        asked: &RunConfig,
        options: ConversationOptions,
    ) -> Vec<String> {
        let mut sentences = Vec::new();
        if asked.loss_on.is_none() {
            let learned = "Only the answers of the assistant are learned; --loss-on all also learns the other messages";
            sentences.push(learned.to_owned());
        }
        if asked.tokens.is_none() {
            sentences.push(format!(
                "Ebb reads at most {} tokens of a conversation; --tokens sets another number",
                format_count(self.input_size.into())
            ));
        }
        if asked.packing.is_none() && options.packs {
            let packed = "Several conversations share a window, because most of them are short; --packing off switches this off";
            sentences.push(packed.to_owned());
        }
        sentences
    }
}
