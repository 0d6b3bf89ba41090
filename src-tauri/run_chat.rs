//! Try it for language models: answers in a conversation, by the trained model and by the model
//! that its run started from, and the questions of a file, asked before and after the training. The
//! models compute on two threads, and the page asks for what there is so far. If memory has no room
//! for the models of both threads, an answer waits for the questions, or they wait for the answer.

mod answer;
mod language_models;
mod questions;

pub use answer::{ChatAnswerView, ChatRequest};
pub use questions::QuestionsView;

use crate::inference_thread::InferenceThread;
use crate::lock_mutex::lock;
use crate::window_types::CommandError;
use answer::PendingAnswer;
use dataset::QuestionFile;
use language_models::LanguageModels;
use questions::PendingQuestions;
use runlog::RunFolder;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The answers that are generated for the open results page, and its questions.
#[derive(Default)]
pub struct RunChat {
    /// Answers messages.
    inference: InferenceThread<LanguageModels>,
    /// Asks questions, which may take hours.
    questions_inference: InferenceThread<LanguageModels>,
    answers: Mutex<HashMap<u32, Arc<PendingAnswer>>>,
    questions: Mutex<Option<Arc<PendingQuestions>>>,
    /// Number of the latest answer.
    latest: AtomicU32,
}

impl RunChat {
    /// Begins an answer, and returns its number. `available_bytes` are available to Ebb.
    ///
    /// # Errors
    /// A setting is out of its range, or the thread cannot be started.
    pub fn begin(
        &self,
        run: &str,
        folder: RunFolder,
        request: ChatRequest,
        available_bytes: u64,
    ) -> Result<u32, CommandError> {
        let options = request.options()?;
        let waits = self.waits_for_questions(available_bytes);
        let inference = if waits {
            &self.questions_inference
        } else {
            &self.inference
        };
        let number = self.latest.fetch_add(1, Ordering::Relaxed) + 1;
        let pending = Arc::new(PendingAnswer::new(run, waits));
        lock(&self.answers).insert(number, Arc::clone(&pending));
        let writes = Arc::clone(&pending);
        let work = move |models: &LanguageModels| {
            let outcome = writes.answer(models, &request, &options);
            if waits {
                // Later answers have a model on the other thread.
                models.free_chat();
            }
            outcome
        };
        let respond = move |outcome| pending.end(outcome);
        let begun = inference.begin(run, folder, work, respond);
        begun.inspect_err(|_| drop(lock(&self.answers).remove(&number)))?;
        Ok(number)
    }

    /// What there is of an answer. It is forgotten when its end was read.
    ///
    /// # Errors
    /// The number is unknown.
    pub fn answer(&self, number: u32) -> Result<ChatAnswerView, CommandError> {
        let mut answers = lock(&self.answers);
        let pending = answers.get(&number);
        let view = pending
            .ok_or_else(|| CommandError::unknown("answer"))?
            .view();
        if view.is_done {
            answers.remove(&number);
        }
        Ok(view)
    }

    /// Ends an answer with what there is of it.
    pub fn stop(&self, number: u32) {
        if let Some(pending) = lock(&self.answers).get(&number) {
            pending.stop();
        }
    }

    /// Asks the questions of a file; [`Self::questions`] reports the progress. Earlier questions
    /// end. `available_bytes` are available to Ebb.
    ///
    /// # Errors
    /// The file has no usable question, or the thread cannot be started.
    pub fn ask(
        &self,
        run: &str,
        folder: RunFolder,
        path: &Path,
        available_bytes: u64,
    ) -> Result<(), CommandError> {
        let file = QuestionFile::check(path).map_err(trainer::TrainError::from)?;
        if let Some(earlier) = lock(&self.questions).take() {
            earlier.stop();
        }
        let answering = self.answering();
        let waits = waits_for_answers(&answering, available_bytes);
        let inference = if waits {
            &self.inference
        } else {
            &self.questions_inference
        };
        if answering.is_empty() {
            // Two models may not fit into memory, and the next answer can load its own again.
            let free = |models: &LanguageModels| {
                models.free_chat();
                Ok(())
            };
            self.inference.ask(run, folder.clone(), free)?;
        }
        let pending = Arc::new(PendingQuestions::new(run, waits));
        *lock(&self.questions) = Some(Arc::clone(&pending));
        let asks = Arc::clone(&pending);
        let work = move |models: &LanguageModels| asks.ask(models, &file);
        let respond = move |outcome| pending.end(outcome);
        let begun = inference.begin(run, folder, work, respond);
        begun.inspect_err(|_| *lock(&self.questions) = None)
    }

    /// The answers that are not complete.
    fn answering(&self) -> Vec<Arc<PendingAnswer>> {
        let answers = lock(&self.answers);
        let pending = answers.values().filter(|pending| !pending.view().is_done);
        pending.cloned().collect()
    }

    /// Whether an answer waits for the questions that are asked, because no second model fits.
    fn waits_for_questions(&self, available_bytes: u64) -> bool {
        let asked = lock(&self.questions).clone();
        asked.is_some_and(|asked| {
            !asked.view().is_done
                // Otherwise they are on the thread of the answers already.
                && !asked.waits_for_answers()
                && !fits_beside(asked.model_bytes(), available_bytes)
        })
    }

    /// How far the questions of a run are, or their results; `None` if there are none.
    pub fn questions(&self, run: &str) -> Option<QuestionsView> {
        let pending = lock(&self.questions).clone();
        let pending = pending.filter(|pending| pending.run() == run);
        pending.map(|pending| pending.view())
    }

    /// Ends the questions of a run. Their results are forgotten.
    pub fn stop_questions(&self, run: &str) {
        let left = lock(&self.questions).take_if(|pending| pending.run() == run);
        if let Some(pending) = left {
            pending.stop();
        }
    }

    /// Frees the models of a run, and ends its answers and questions.
    pub fn leave(&self, run: &str) {
        lock(&self.answers).retain(|_, pending| {
            if pending.run() == run {
                pending.stop();
            }
            pending.run() != run
        });
        self.stop_questions(run);
        self.inference.leave(run);
        self.questions_inference.leave(run);
    }
}

/// Whether questions wait for these answers, because no second model fits.
fn waits_for_answers(answering: &[Arc<PendingAnswer>], available_bytes: u64) -> bool {
    // Answers that wait for questions are on the thread of the questions already.
    let is_elsewhere = answering.iter().any(|it| it.waits_for_questions());
    let fits = |it: &Arc<PendingAnswer>| fits_beside(it.model_bytes(), available_bytes);
    !is_elsewhere && !answering.iter().all(fits)
}

/// Whether the same model fits a second time beside one of `bytes` and what it computes. `bytes` is
/// 0 while the model is loaded; nothing is known of it then.
fn fits_beside(bytes: u64, available_bytes: u64) -> bool {
    bytes > 0 && available_bytes >= bytes + bytes / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    const AVAILABLE: u64 = 1 << 30;

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let place = tempfile::tempdir().expect("a temporary folder");
        let path = place.path().to_owned();
        (place, RunFolder { path })
    }

    fn request(message: &str) -> ChatRequest {
        serde_json::from_value(serde_json::json!({
            "turns": [], "message": message, "system": "", "base": false, "tokens": 8,
            "temperature": 0.8, "top_k": null, "top_p": null, "min_p": null,
            "repetition_penalty": 1.0, "stop": [], "seed": 7,
        }))
        .expect("it is a request")
    }

    #[test]
    fn an_answer_that_fails_has_a_reason_and_is_forgotten_when_it_was_read() {
        let (_place, folder) = folder();
        let chat = RunChat::default();
        let number = chat.begin("r1", folder, request("Hi"), AVAILABLE);
        let number = number.expect("the thread starts");
        let deadline = Instant::now() + Duration::from_secs(20);
        let view = loop {
            let view = chat.answer(number).expect("it is known");
            if view.is_done || Instant::now() > deadline {
                break view;
            }
            sleep(Duration::from_millis(2));
        };
        assert!(view.is_done, "it ended");
        assert!(view.problem.is_some(), "an empty folder is no run");
        let forgotten = chat.answer(number).map_err(|error| error.code);
        assert_eq!(forgotten.err(), Some("unknown_id".to_owned()));
    }

    #[test]
    fn a_setting_out_of_its_range_is_refused_before_a_model_is_loaded() {
        let (_place, folder) = folder();
        let chat = RunChat::default();
        let wrong = ChatRequest {
            temperature: 11.0,
            ..request("Hi")
        };
        let refused = chat
            .begin("r1", folder, wrong, AVAILABLE)
            .expect_err("too hot");
        assert_eq!(refused.code, "invalid_setting");
        assert!(
            refused.message.contains("temperature"),
            "{}",
            refused.message
        );
        assert!(lock(&chat.answers).is_empty(), "nothing waits");
    }

    #[test]
    fn a_page_that_is_left_forgets_its_answers_and_questions() {
        let (_place, folder) = folder();
        let chat = RunChat::default();
        let number = chat.begin("r1", folder.clone(), request("Hi"), AVAILABLE);
        let number = number.expect("the thread starts");
        let other = chat
            .begin("r2", folder, request("Hi"), AVAILABLE)
            .expect("it starts");
        chat.leave("r1");
        assert!(chat.answer(number).is_err(), "it is forgotten");
        assert!(chat.answer(other).is_ok(), "another page is open");
    }

    #[test]
    fn a_file_without_questions_is_refused_at_once() {
        let (place, folder) = folder();
        let path: PathBuf = place.path().join("notes.jsonl");
        std::fs::write(&path, "{\"text\":\"no question\"}\n").expect("it can be written");
        let chat = RunChat::default();
        let refused = chat
            .ask("r1", folder, &path, AVAILABLE)
            .expect_err("no question");
        assert!(
            refused.message.contains("notes.jsonl"),
            "{}",
            refused.message
        );
        assert!(chat.questions("r1").is_none());
    }

    /// Waits up to some seconds until `reached` is true.
    fn until(reached: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !reached() && Instant::now() < deadline {
            sleep(Duration::from_millis(2));
        }
        reached()
    }

    /// A chat in which an answer by a model of 1 MB waits for the end of the channel, and the
    /// outcome of questions that are asked meanwhile.
    fn questions_beside_an_answer(available_bytes: u64) -> (RunChat, Sender<()>) {
        let (place, folder) = folder();
        let path = place.path().join("sums.jsonl");
        let row = "{\"question\":\"1+1\",\"choices\":[\"2\",\"3\"],\"answer\":0}\n";
        std::fs::write(&path, row).expect("it can be written");
        let chat = RunChat::default();
        let (ends, ended) = channel::<()>();
        let pending = Arc::new(PendingAnswer::new("r1", false));
        pending.set_model_bytes(1 << 20);
        lock(&chat.answers).insert(1, Arc::clone(&pending));
        let work = move |_: &LanguageModels| {
            let _ = ended.recv();
            Ok(())
        };
        let respond = move |outcome| pending.end(outcome);
        let begun = chat.inference.begin("r1", folder.clone(), work, respond);
        begun.expect("the thread starts");
        let asked = chat.ask("r1", folder, &path, available_bytes);
        asked.expect("it has a question");
        (chat, ends)
    }

    fn are_answered(chat: &RunChat) -> bool {
        chat.questions("r1").is_some_and(|view| view.is_done)
    }

    #[test]
    fn a_long_answer_does_not_delay_questions_if_both_models_fit() {
        let (chat, ends) = questions_beside_an_answer(2 << 20);
        // An empty folder is no run, so they end at once.
        assert!(until(|| are_answered(&chat)), "they do not wait");
        assert!(!chat.answer(1).expect("it is known").is_done);
        drop(ends);
    }

    #[test]
    fn questions_wait_for_an_answer_if_a_second_model_does_not_fit() {
        let (chat, ends) = questions_beside_an_answer(1 << 20);
        sleep(Duration::from_millis(200));
        assert!(!are_answered(&chat), "the answer is not complete");
        drop(ends);
        assert!(until(|| are_answered(&chat)), "they come next");
    }

    #[test]
    fn a_model_of_unknown_size_has_no_room_beside_it() {
        assert!(!fits_beside(0, u64::MAX));
        assert!(fits_beside(4, 5));
        assert!(!fits_beside(4, 4));
    }

    #[test]
    fn the_types_of_the_chat_are_current() {
        use ts_rs::TS;
        crate::window_types::tests::current_types(|config| {
            ChatRequest::export_all(config)?;
            ChatAnswerView::export_all(config)?;
            QuestionsView::export_all(config)
        });
    }
}
