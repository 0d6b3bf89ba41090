//! A run that has learnt texts: evaluated on a folder of them, or asked what one is.

use super::{Evaluated, PIECE, SavedRun, part};
use crate::error::Result;
use crate::task::{Corpus, HeldOut, Prediction, Text, boundary};
use dataset::{Documents, Task, TextInspection};
use std::sync::Arc;
use tape::Cancel;

impl SavedRun {
    /// Evaluates on texts or documents.
    pub(super) fn of_texts(&self, found: &TextInspection) -> Result<Evaluated> {
        if found.task != self.task().detected_as() {
            return Err(self.wrong_task(&format!("a folder for a {}", found.task.label())));
        }
        let part = part(
            |part| found.count(part),
            found.refusal.as_ref(),
            found.task.sample_noun(),
        )?;
        let tokens = self.plan.image_size as usize;
        let (mut feed, bytes) = match found.task {
            Task::LanguageModel | Task::TokenCompression => {
                let documents = Documents::open(found, part, &self.tokenizer)?;
                let bytes = documents.bytes();
                let boundary = boundary(&self.tokenizer)?;
                let (documents, reading) = (Arc::new(documents), self.reading.clone());
                let tokens = self.plan.image_size;
                (
                    HeldOut::of_documents(documents, tokens, boundary, reading),
                    bytes,
                )
            }
            Task::TextClassification | Task::ImageClassification => {
                let labels = self.labels(&found.name, &found.classes)?;
                let corpus = Corpus::open(found, part, &self.tokenizer, tokens)?;
                (HeldOut::of_texts(Arc::new(corpus.relabelled(&labels))), 0)
            }
        };
        feed.begin();
        let sums = self.sums(|| feed.fetch(PIECE))?;
        Ok(self.evaluated(sums, bytes, self.known.measured(part, found)))
    }

    /// What each text is.
    ///
    /// # Errors
    /// The run has learnt something else than classes of texts.
    pub fn predict_texts(&self, texts: &[String]) -> Result<Vec<Prediction>> {
        if self.task() != Task::TextClassification {
            return Err(self.wrong_task("texts to be told apart"));
        }
        let work = self.learner.evaluation_work(Cancel::default());
        let one = |text: &String| {
            let text = Text::read(text, &self.tokenizer, self.plan.image_size as usize)?;
            work.classify(&[&text])
        };
        let found: Result<Vec<Vec<Prediction>>> = texts.iter().map(one).collect();
        Ok(found?.into_iter().flatten().collect())
    }
}
