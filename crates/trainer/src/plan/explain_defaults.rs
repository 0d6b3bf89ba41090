//! The defaults that Ebb chose for images, each with its reason and the setting that changes it.

use super::{Augmentation, ConversationOptions, Plan};
use dataset::{Mix, Task};
use runlog::{RunConfig, counted, format_count};

impl Plan {
    /// A sentence for each default that depends on the images or conversations and that `asked`
    /// leaves open. Empty for other texts, and for images and pretrained weights.
    pub fn explain_defaults(&self, asked: &RunConfig) -> Vec<String> {
        if let Some(options) = self.conversations {
            return self.explain_conversations(asked, options);
        }
        if self.task() != Task::ImageClassification || self.pretrained.is_some() {
            return Vec::new();
        }
        let mut sentences = Vec::new();
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
            let reason =
                "Small crops, because the run is short; for larger crops, use --augment standard";
            sentences.push(reason.to_owned());
        }
        if asked.mix.is_none() && self.mix != Mix::None {
            let each = self.train_samples / (self.classes.len() as u64).max(1);
            sentences.push(format!(
                "Pairs of images are mixed, because there are only about {} of each class; --mix none switches this off",
                format_count(each)
            ));
        }
        if let (None, Some(decay)) = (asked.ema_decay, self.ema_decay) {
            sentences.push(format!(
                "The weights are averaged over the last steps with decay {decay}; --ema-decay 0 switches this off"
            ));
        }
        sentences
    }

    fn explain_conversations(
        &self,
        asked: &RunConfig,
        options: ConversationOptions,
    ) -> Vec<String> {
        let mut sentences = Vec::new();
        if asked.loss_on.is_none() {
            let learned = "Only the answers of the assistant are learned (--loss-on all)";
            sentences.push(learned.to_owned());
        }
        if asked.tokens.is_none() {
            sentences.push(format!(
                "At most {} tokens of a conversation are read (--tokens)",
                format_count(self.input_size.into())
            ));
        }
        if asked.packing.is_none() && options.packs {
            let packed = "Several conversations share a window, because most of them are short (--packing off)";
            sentences.push(packed.to_owned());
        }
        sentences
    }
}
