//! Evaluates and predicts texts.

use super::{Evaluation, EvaluationSums, TrainedModel, evaluated_part};
use crate::data::{Corpus, EvalLoader, TextEvalLoader, load_token_frequencies, open_split};
use crate::error::{Result, TrainError};
use crate::preparation::Preparation;
use crate::task::{
    BaseReport, CompressionTask, ForwardContext, LanguageTask, Prediction, Text, TextTask,
};
use crate::train_state::TrainState;
use dataset::{DetectedDataset, Split, Task, TextInspection, Window};
use std::sync::Arc;
use tape::device::with_autorelease_pool;

impl TrainedModel {
    /// Evaluates on labeled texts or documents.
    pub(super) fn evaluate_texts(&self, found: &TextInspection) -> Result<Evaluation> {
        if found.task != self.task().detected_as() {
            return Err(self.wrong_dataset(&DetectedDataset::Texts(found.clone())));
        }
        let learns_preferences = self.plan.preference_beta.is_some();
        if found.has_preferences() != learns_preferences {
            return Err(TrainError::NotTrainable {
                message: if learns_preferences {
                    "this run learned preferences; evaluate it on data with the columns chosen and rejected"
                } else {
                    "only runs that learned preferences can be evaluated on data with chosen and rejected answers"
                }
                .to_owned(),
            });
        }
        let count = |part| found.count(part);
        let part = evaluated_part(count, found.refusal.as_ref(), found.task.sample_noun())?;
        let part_label = self.seen_files.part_label(part, found);
        match found.task {
            Task::LanguageModel | Task::TokenCompression => {
                self.evaluate_documents(found, part, part_label)
            }
            Task::TextClassification | Task::ImageClassification => {
                let labels = self.labels(&found.name, &found.classes)?;
                let max_tokens = self.plan.input_size as usize;
                let (tokenizer, unobserved) = (&self.tokenizer, Preparation::default());
                let corpus = Corpus::open(found, part, tokenizer, max_tokens, unobserved)?;
                let mut loader = TextEvalLoader::new(Arc::new(corpus.relabeled(&labels)));
                if let Some(mixed) = &self.mixed_baseline
                    && let Some(scores) = mixed.scores_of_texts(found, part)?
                {
                    loader.set_baseline(scores);
                }
                Ok(self.evaluation(self.sum_over(loader, |_| {})?, 0, part_label))
            }
        }
    }

    fn evaluate_documents(
        &self,
        found: &TextInspection,
        part: Split,
        part_label: &'static str,
    ) -> Result<Evaluation> {
        let nothing = Preparation::default();
        let source = open_split(&self.plan, found, &self.tokenizer, part, nothing)?;
        let (bytes, tokens) = (source.documents().bytes(), self.plan.input_size);
        if self.task() == Task::TokenCompression {
            let frequencies = load_token_frequencies(&self.run)?;
            let windows = CompressionTask::windows(&source, tokens, &frequencies);
            let sums = self.sum_over(windows, |_| {})?;
            return Ok(self.evaluation(sums, bytes, part_label));
        }
        let windows = || LanguageTask::windows(&source, tokens);
        // The rewards of preferences compare the model with the base already.
        if self.plan.pretrained.is_none() || self.plan.preference_beta.is_some() {
            return Ok(self.evaluation(self.sum_over(windows(), |_| {})?, bytes, part_label));
        }
        self.progress.begin(2 * windows().len());
        let before = self.sum_before_training(windows())?;
        let after = self.sum_with(&self.context(), windows(), |_| {})?;
        let before = self.evaluation(before, bytes, part_label).results.report;
        let mut evaluation = self.evaluation(after, bytes, part_label);
        let bits = before.metrics.get("bits_per_byte");
        evaluation.results.report.base = bits.map(|bits| BaseReport {
            loss: before.loss,
            bits_per_byte: *bits,
        });
        Ok(evaluation)
    }

    /// Evaluates the weights that a language model was fine-tuned from. If it has adapters, the
    /// same network computes without them; otherwise the weights are loaded a second time.
    fn sum_before_training(
        &self,
        windows: impl EvalLoader<Sample = Window>,
    ) -> Result<EvaluationSums> {
        let tuning = self.plan.pretrained.as_ref().map(|base| base.tuning());
        if tuning.is_some_and(|tuning| tuning.adapter.is_some()) {
            let context = ForwardContext {
                without_adapters: true,
                ..self.context()
            };
            return self.sum_with(&context, windows, |_| {});
        }
        // Before its first step, a network that gets no new head is the pretrained one.
        let base = TrainState::without_moments(&self.plan, &self.kernel_outputs.0)?;
        let context = base.evaluation_context(self.progress.cancel.clone());
        self.sum_with(&context, windows, |_| {})
    }

    /// The class probabilities of each text.
    ///
    /// # Errors
    /// The model was trained for another task.
    pub fn predict_texts(&self, texts: &[String]) -> Result<Vec<Prediction>> {
        if self.task() != Task::TextClassification {
            return Err(self.wrong_task("classify texts"));
        }
        let (context, max_tokens) = (self.context(), self.plan.input_size as usize);
        let predict = |text: &String| {
            let mixed = self.mixed_baseline.as_ref();
            let text = Text {
                baseline: mixed.map_or_else(Vec::new, |mixed| mixed.scores(text)),
                ..Text::unlabeled(text, &self.tokenizer, max_tokens)?
            };
            let share = self.baseline_share();
            with_autorelease_pool(|| TextTask::predict(&context, &[text], share))
        };
        let predictions: Result<Vec<Vec<Prediction>>> = texts.iter().map(predict).collect();
        Ok(predictions?.into_iter().flatten().collect())
    }
}
