//! Answers the prompts of the run after an evaluation, with the weights that were evaluated. The
//! answers always take the most probable token, so they draw no random numbers and change nothing
//! of the training.

use super::recover_from_device_failure::recover;
use super::requests::handle_requests;
use crate::data::{EncodedPrompt, PromptSet, saved_tokenizer};
use crate::error::Result;
use crate::session::Session;
use crate::task::Task;
use crate::trained_model::{GenerationOptions, Generator, TextEnd};
use dataset::Tokenizer;
use runlog::{PromptAnswer, RunEvent, StopReason};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tape::device::with_autorelease_pool;

/// Code of the warning that the prompts were not answered.
const NOT_ANSWERED: &str = "prompts_not_answered";
/// Longest time for all answers after one evaluation. The answer that is generated then ends, and
/// later prompts are left out.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Answers the prompts and emits the answers. If the device fails, or memory is critical, the other
/// prompts are left out. Breaks if the run shall stop.
///
/// # Errors
/// The weights may be damaged after a failure of the device.
pub(super) fn answer_prompts<T: Task>(
    session: &mut Session<'_, T>,
) -> Result<ControlFlow<StopReason>> {
    let Some(set) = session.prompts.clone() else {
        return Ok(ControlFlow::Continue(()));
    };
    let tokenizer = match saved_tokenizer(session.plan, &session.run) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            let message = format!("the prompts were not answered: {error}");
            session.log.warn(NOT_ANSWERED, message)?;
            return Ok(ControlFlow::Continue(()));
        }
    };
    let mut answers = Vec::new();
    let flow = answer_each(session, &set, &tokenizer, &mut answers);
    if !answers.is_empty() {
        session.log.emit(RunEvent::Answers {
            at_ms: session.log.now_ms(),
            step: session.state.step,
            answers,
        })?;
    }
    let flow = flow?;
    // The cached keys and values have other sizes than what a micro-batch needs.
    session.controller.release()?;
    Ok(flow)
}

/// Adds the answer to each prompt.
fn answer_each<T: Task>(
    session: &mut Session<'_, T>,
    set: &PromptSet,
    tokenizer: &Tokenizer,
    answers: &mut Vec<PromptAnswer>,
) -> Result<ControlFlow<StopReason>> {
    let deadline = Instant::now() + TIME_LIMIT;
    for prompt in &set.prompts {
        if handle_requests(session)? {
            return Ok(ControlFlow::Break(StopReason::Requested));
        }
        if Instant::now() >= deadline || !session.controller.watch() {
            break;
        }
        if session.control.is_stopping() {
            // The stop arrived after the last poll, and `watch` has cleared its cancel flag.
            session.controller.discard();
            break;
        }
        let asked = Asked {
            set,
            prompt,
            tokenizer,
            deadline,
        };
        let answered = with_autorelease_pool(|| asked.answer(session));
        session.controller.discard();
        match answered {
            Ok(Some(answer)) => answers.push(answer),
            // Cancelled, because the run shall stop or memory is critical.
            Ok(None) => break,
            Err(error) => {
                let step = session.state.step;
                let message = format!("prompts were not answered at step {step}: {error}");
                session.log.warn(NOT_ANSWERED, message)?;
                if error.device_fault().is_some() {
                    recover(session, error, false)?;
                }
                break;
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// One prompt that is answered.
struct Asked<'p> {
    set: &'p PromptSet,
    prompt: &'p EncodedPrompt,
    tokenizer: &'p Tokenizer,
    deadline: Instant,
}

impl Asked<'_> {
    /// The answer of the evaluated weights; `None` if it was cancelled.
    fn answer<T: Task>(&self, session: &Session<'_, T>) -> Result<Option<PromptAnswer>> {
        let context = (session.learner).evaluation_context(session.control.cancel());
        let Asked { set, prompt, .. } = self;
        let generator = Generator::new(&context, self.tokenizer, &set.ends, set.context)?;
        let options = GenerationOptions {
            tokens: prompt.answer_tokens,
            temperature: 0.0,
            stop: set.stop.clone(),
            ..GenerationOptions::default()
        };
        let mut is_late = false;
        let generated = generator.generate(prompt.tokens.clone(), &options, |_| {
            is_late = Instant::now() >= self.deadline;
            if is_late {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if generated.end == TextEnd::Interrupted && !is_late {
            return Ok(None);
        }
        Ok(Some(PromptAnswer {
            prompt: prompt.text.clone(),
            answer: generated.text,
            is_cut: generated.end != TextEnd::Complete,
        }))
    }
}
