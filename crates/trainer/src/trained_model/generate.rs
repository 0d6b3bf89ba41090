//! Generates text with a language model, token by token. The same prompt, options and seed give the
//! same text. Keys and values are cached, so each token costs a forward pass over itself alone.

use super::TrainedModel;
use super::choose_token::choose_token;
use super::generation_options::GenerationOptions;
use super::incremental_decoder::{IncrementalDecoder, NewText};
use crate::error::Result;
use crate::task::LanguageTask;
use dataset::Task;
use std::ops::ControlFlow;
use tape::Rng;
use tape::device::with_autorelease_pool;
use tape::inplace::to_f64;

impl TrainedModel {
    /// The text that follows `prompt`. Calls `on_text` with each part of it as soon as it is
    /// certain. The text ends early at a stop text, if the model ends its document, or if `on_text`
    /// breaks. When the context is full, the second half of the text is read again.
    ///
    /// # Errors
    /// The model is not a language model.
    pub fn generate(
        &self,
        prompt: &str,
        options: &GenerationOptions,
        mut on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<String> {
        if self.task() != Task::LanguageModel {
            return Err(self.wrong_task("continue a text"));
        }
        let context = self.context();
        let network = LanguageTask::network(&context)?;
        let boundary = self.tokenizer.boundary();
        let mut ids: Vec<u32> = boundary.into_iter().collect();
        ids.extend(self.tokenizer.encode(prompt)?);
        if ids.is_empty() {
            ids.push(0);
        }
        let limit = self.plan.input_size as usize;
        let draws = Rng::new(options.seed).site("generate");
        let (mut past, mut written) = (network.new_cache(), String::new());
        let mut stream = IncrementalDecoder::new(&self.tokenizer, &options.stop);
        for number in 0..options.tokens {
            // The prompt may fill the context; a text that is read again leaves half of it free.
            let most = if number == 0 {
                limit
            } else {
                (limit / 2).max(1)
            };
            if past.tokens() >= limit {
                past = network.new_cache();
            }
            let new = match past.tokens() {
                0 => &ids[ids.len().saturating_sub(most)..],
                _ => &ids[ids.len() - 1..],
            };
            let scores = with_autorelease_pool(|| -> Result<Vec<f64>> {
                let tape = context.inference_tape();
                let scores = network.next_scores_cached(&tape, new, &mut past)?;
                Ok(to_f64(scores.tensor())?)
            })?;
            let chance = draws.uniform(number as u64);
            let next = choose_token(scores, &ids, options, chance);
            if Some(next) == boundary {
                break;
            }
            ids.push(next);
            let (text, is_last) = match stream.push(next) {
                NewText::Text(text) => (text, false),
                NewText::Last(text) => (text, true),
            };
            written.push_str(&text);
            if on_text(&text).is_break() || is_last {
                return Ok(written);
            }
        }
        let rest = stream.finish();
        written.push_str(&rest);
        let _ = on_text(&rest);
        Ok(written)
    }
}
