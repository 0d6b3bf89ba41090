//! The questions of a file, asked before and after the training, while they are answered.

use super::language_models::LanguageModels;
use crate::lock_mutex::lock;
use crate::paths::device_check_path;
use crate::question_scores::{Evaluated, measures, summary};
use crate::window_types::CommandError;
use dataset::{AnswerRule, QuestionFile, QuestionOptions};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use trainer::{DevicePreference, Progress, QuestionModel};
use ts_rs::TS;

/// Most tokens of an answer, as in `ebb evaluate`.
const TOKENS: usize = 256;
/// Rows that cannot be used are listed up to this number.
const LISTED: usize = 5;

/// How far the questions are, or their results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, TS)]
pub struct QuestionsView {
    /// "before", "after", or "model" for a run that started from random weights: the model that is
    /// asked.
    pub asking: String,
    /// Questions that this model was asked, and all of them; 0 while the model is loaded.
    pub progress: (u64, u64),
    /// Whether the results are there, or the reason why there are none.
    pub is_done: bool,
    /// Why there are no results.
    pub problem: Option<String>,
    /// What was asked, and what was skipped.
    pub note: String,
    /// "before" and "after", or "model".
    pub models: Vec<String>,
    /// The measures, each with its fraction for each model.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
    /// Lines that cannot be used, each with the reason.
    pub skipped: Vec<(u64, String)>,
}

/// Questions that are answered.
pub struct PendingQuestions {
    run: String,
    /// Whether they are asked on the thread of the answers, after these.
    waits_for_answers: bool,
    is_stopped: AtomicBool,
    /// Bytes of the weights of the model that is asked; 0 before the first one is loaded.
    model_bytes: AtomicU64,
    /// Progress of the model that is asked; `None` while it is loaded.
    progress: Mutex<Option<Arc<Progress>>>,
    view: Mutex<QuestionsView>,
}

impl PendingQuestions {
    pub fn new(run: &str, waits_for_answers: bool) -> Self {
        PendingQuestions {
            run: run.to_owned(),
            waits_for_answers,
            is_stopped: AtomicBool::new(false),
            model_bytes: AtomicU64::new(0),
            progress: Mutex::default(),
            view: Mutex::default(),
        }
    }

    /// The run whose model is asked.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Whether they are asked on the thread of the answers, after these.
    pub fn waits_for_answers(&self) -> bool {
        self.waits_for_answers
    }

    /// Bytes of the weights of the model that is asked; 0 before the first one is loaded.
    pub fn model_bytes(&self) -> u64 {
        self.model_bytes.load(Ordering::Relaxed)
    }

    /// How far it is, or the results.
    pub fn view(&self) -> QuestionsView {
        let progress = lock(&self.progress);
        let progress = progress.as_ref().map(|progress| progress.done_of_total());
        QuestionsView {
            progress: progress.unwrap_or_default(),
            ..lock(&self.view).clone()
        }
    }

    /// Ends the evaluation.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        if let Some(progress) = &*lock(&self.progress) {
            progress.cancel();
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Asks the model that the run started from, and then the trained one. Only one of them is in
    /// memory.
    ///
    /// # Errors
    /// A model cannot be loaded or asked, the file can no longer be read, or the device fails.
    pub fn ask(&self, models: &LanguageModels, file: &QuestionFile) -> Result<(), CommandError> {
        models.free_chat();
        if self.is_stopped() {
            return Ok(());
        }
        let options = QuestionOptions {
            letters: false,
            tokens: TOKENS,
            rule: AnswerRule::default(),
        };
        let (run, device, check) = (models.run(), DevicePreference::Auto, device_check_path());
        let mut evaluated = Vec::new();
        lock(&self.view).asking = "before".to_owned();
        if let Some(base) = QuestionModel::from_run_base(run, file, device, Some(&check))? {
            evaluated.push(self.evaluate("before", &base, file, &options)?);
        }
        let name = if evaluated.is_empty() {
            "model"
        } else {
            "after"
        };
        *lock(&self.progress) = None;
        lock(&self.view).asking = name.to_owned();
        let model = QuestionModel::from_run(run, file, device, Some(&check))?;
        evaluated.push(self.evaluate(name, &model, file, &options)?);
        self.show(file, &evaluated);
        Ok(())
    }

    fn evaluate(
        &self,
        name: &'static str,
        model: &QuestionModel,
        file: &QuestionFile,
        options: &QuestionOptions,
    ) -> Result<Evaluated, CommandError> {
        self.model_bytes
            .store(model.weights_bytes(), Ordering::Relaxed);
        *lock(&self.progress) = Some(Arc::clone(&model.progress));
        // After the progress is set: `stop` raises the flag first.
        if self.is_stopped() {
            model.progress.cancel();
        }
        let scores = model.evaluate(file, options)?;
        Ok(Evaluated { name, scores })
    }

    fn show(&self, file: &QuestionFile, evaluated: &[Evaluated]) {
        let all: Vec<_> = evaluated.iter().map(|it| measures(&it.scores)).collect();
        let row = |row: usize| {
            let shares: Vec<Option<f64>> = all.iter().map(|measures| measures[row].2).collect();
            let is_shown = shares.iter().any(Option::is_some);
            is_shown.then(|| (all[0][row].0.to_owned(), shares))
        };
        let refused = evaluated.last().map_or(&[][..], |it| &it.scores.reasons);
        let skipped = file.reasons.iter().chain(refused);
        let skipped = skipped.map(|(line, reason)| (*line, format!("This row {reason}.")));
        let mut view = lock(&self.view);
        view.note = summary(file, evaluated);
        view.models = evaluated.iter().map(|it| it.name.to_owned()).collect();
        view.rows = (0..3).filter_map(row).collect();
        view.skipped = skipped.take(LISTED).collect();
    }

    /// Marks the evaluation as complete.
    pub fn end(&self, outcome: Result<(), CommandError>) {
        let mut view = lock(&self.view);
        view.is_done = true;
        view.problem = outcome.err().map(|error| error.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataset::QuestionScores;

    #[test]
    fn the_table_has_only_the_measures_that_were_asked_for() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let path = place.path().join("sums.jsonl");
        let rows = "{\"question\":\"1+1\",\"answer\":\"2\"}\n{\"question\":\"?\"}\n";
        std::fs::write(&path, rows).expect("it can be written");
        let file = QuestionFile::check(&path).expect("it has a question");
        let scores = |right_answers| QuestionScores {
            answers: 4,
            right_answers,
            ..QuestionScores::default()
        };
        let evaluated = [("before", 1), ("after", 3)].map(|(name, right)| Evaluated {
            name,
            scores: scores(right),
        });
        let pending = PendingQuestions::new("r1", false);
        pending.show(&file, &evaluated);
        pending.end(Ok(()));
        let view = pending.view();
        assert!(view.is_done && view.problem.is_none());
        assert_eq!(view.models, ["before", "after"]);
        let exact = ("exact match".to_owned(), vec![Some(0.25), Some(0.75)]);
        assert_eq!(view.rows, [exact], "no choices were asked");
        assert_eq!(view.note, "4 questions with answers, 1 row skipped");
        assert_eq!(view.skipped.len(), 1, "{:?}", view.skipped);
        assert_eq!(view.skipped[0].0, 2);
    }
}
