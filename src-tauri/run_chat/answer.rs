//! An answer in a conversation while it is generated.

use super::language_models::LanguageModels;
use crate::lock_mutex::lock;
use crate::window_types::CommandError;
use dataset::ChatTurn;
use serde::{Deserialize, Serialize};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use trainer::GenerationOptions;
use ts_rs::TS;

/// A message, with the conversation before it and how it is answered.
#[derive(Debug, Clone, PartialEq, Deserialize, TS)]
pub struct ChatRequest {
    /// Earlier messages with their answers, the oldest first.
    pub turns: Vec<(String, String)>,
    /// The message.
    pub message: String,
    /// What the model should know or follow in the whole conversation; may be empty.
    pub system: String,
    /// Whether the model that the run started from answers.
    pub base: bool,
    /// Most tokens of the answer.
    pub tokens: u32,
    /// 0 always takes the most probable token.
    pub temperature: f64,
    /// Number of the most probable tokens to sample from.
    pub top_k: Option<u32>,
    /// Sum of the probabilities of the tokens to sample from.
    pub top_p: Option<f64>,
    /// Least probability of the tokens to sample from, as a fraction of the highest one.
    pub min_p: Option<f64>,
    /// 1 changes nothing.
    pub repetition_penalty: f64,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Seed of the sampling.
    pub seed: u32,
}

/// What there is of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, TS)]
pub struct ChatAnswerView {
    /// The text so far.
    pub text: String,
    /// Whether this is all of it.
    pub is_done: bool,
    /// What the user should know about it.
    pub notes: Vec<String>,
    /// Why there is no answer.
    pub problem: Option<String>,
}

/// An answer that is generated.
pub struct PendingAnswer {
    run: String,
    /// Whether it is generated on the thread of the questions, after them.
    waits_for_questions: bool,
    /// Raised to end the answer.
    is_stopped: Arc<AtomicBool>,
    /// Bytes of the model's weights; 0 before it is loaded.
    model_bytes: AtomicU64,
    view: Mutex<ChatAnswerView>,
}

impl ChatRequest {
    /// How the answer is generated.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn options(&self) -> Result<GenerationOptions, CommandError> {
        let within = |name: &str, value: Option<f64>, range: RangeInclusive<f64>| match value {
            Some(value) if !range.contains(&value) => Err(CommandError::new(
                "invalid_setting",
                format!(
                    "The {name} {value} is not possible. Write a number from {} to {}.",
                    range.start(),
                    range.end()
                ),
            )),
            _ => Ok(()),
        };
        within(
            "number of tokens",
            Some(self.tokens.into()),
            1.0..=100_000.0,
        )?;
        within("temperature", Some(self.temperature), 0.0..=10.0)?;
        within("top-k", self.top_k.map(f64::from), 1.0..=1_000_000.0)?;
        within("top-p", self.top_p, 0.0..=1.0)?;
        within("min-p", self.min_p, 0.0..=1.0)?;
        let penalty = Some(self.repetition_penalty);
        within("repetition penalty", penalty, 1.0..=10.0)?;
        Ok(GenerationOptions {
            tokens: self.tokens as usize,
            temperature: self.temperature,
            top_k: self.top_k.map(|top_k| top_k as usize),
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            stop: self.stop.clone(),
            seed: self.seed.into(),
        })
    }

    fn turns(&self) -> Vec<ChatTurn> {
        let turns = self.turns.iter();
        let turns = turns.map(|(message, answer)| ChatTurn {
            message: message.clone(),
            answer: answer.clone(),
        });
        turns.collect()
    }
}

impl PendingAnswer {
    pub fn new(run: &str, waits_for_questions: bool) -> Self {
        PendingAnswer {
            run: run.to_owned(),
            waits_for_questions,
            is_stopped: Arc::default(),
            model_bytes: AtomicU64::new(0),
            view: Mutex::default(),
        }
    }

    /// The run whose model answers.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Whether it is generated on the thread of the questions, after them.
    pub fn waits_for_questions(&self) -> bool {
        self.waits_for_questions
    }

    /// Bytes of the weights of the model that answers; 0 before it is loaded.
    pub fn model_bytes(&self) -> u64 {
        self.model_bytes.load(Ordering::Relaxed)
    }

    pub fn set_model_bytes(&self, bytes: u64) {
        self.model_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What there is so far.
    pub fn view(&self) -> ChatAnswerView {
        lock(&self.view).clone()
    }

    /// Ends the answer with what there is of it.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Generates the answer; its text appears in the view.
    ///
    /// # Errors
    /// The model cannot be loaded or cannot chat, or the device fails.
    pub fn answer(
        &self,
        models: &LanguageModels,
        request: &ChatRequest,
        options: &GenerationOptions,
    ) -> Result<(), CommandError> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Ok(());
        }
        models.with_chat(request.base, |model, is_without_adapters| {
            self.set_model_bytes(model.weights_bytes());
            let system = Some(&*request.system).filter(|system| !system.trim().is_empty());
            let chat = model.start(system, options.tokens)?;
            let mut chat = if is_without_adapters {
                chat.without_adapters()
            } else {
                chat
            }
            .after(request.turns());
            let reply = chat.answer(&request.message, options, &self.is_stopped, |text| {
                lock(&self.view).text.push_str(text);
                if self.is_stopped.load(Ordering::Relaxed) || models.is_left() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
            let mut view = lock(&self.view);
            view.problem = reply.refusal.map(|reason| as_sentence(&reason));
            view.notes = reply.notes.iter().map(|note| as_sentence(note)).collect();
            Ok(())
        })
    }

    /// Marks the answer as complete.
    pub fn end(&self, outcome: Result<(), CommandError>) {
        let mut view = lock(&self.view);
        view.is_done = true;
        if let Err(error) = outcome {
            view.problem = Some(error.message);
        }
    }
}

/// A reason of the trainer as the page shows it: with a capital and a full stop.
pub fn as_sentence(reason: &str) -> String {
    let mut letters = reason.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_end_of_an_answer_keeps_its_text() {
        let pending = PendingAnswer::new("r1", false);
        lock(&pending.view).text.push_str("Half of");
        assert!(!pending.view().is_done);
        pending.end(Err(CommandError::new("failed", "The device failed.")));
        let view = pending.view();
        assert_eq!((&*view.text, view.is_done), ("Half of", true));
        assert_eq!(view.problem.as_deref(), Some("The device failed."));
    }

    #[test]
    fn reasons_become_sentences() {
        let reason = "this message is empty; write a text";
        assert_eq!(as_sentence(reason), "This message is empty; write a text.");
    }
}
