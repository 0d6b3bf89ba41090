//! Evaluates and predicts texts.

use super::{Evaluation, TrainedModel, evaluated_part};
use crate::data::{Corpus, EvalLoader, TextEvalLoader, load_token_frequencies, open_split};
use crate::error::{Result, TrainError};
use crate::preparation::Preparation;
use crate::task::{CompressionTask, LanguageTask, Prediction, Text, TextTask};
use dataset::{DetectedDataset, Split, Task, TextInspection};
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
                if let Some(mixed) = &self.mixed_baseline {
                    if let Some(scores) = mixed.scores_of_texts(found, part)? {
                        loader.set_baseline(scores);
                    }
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
        let sums = if self.task() == Task::TokenCompression {
            let frequencies = load_token_frequencies(&self.run)?;
            self.sum_over(
                CompressionTask::windows(&source, tokens, &frequencies),
                |_| {},
            )?
        } else {
            self.sum_over(LanguageTask::windows(&source, tokens), |_| {})?
        };
        Ok(self.evaluation(sums, bytes, part_label))
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
