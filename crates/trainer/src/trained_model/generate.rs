//! Generates text with a language model, token by token. The same prompt, options and seed give the
//! same text. Keys and values are cached, so each token costs a forward pass over itself alone.

use super::TrainedModel;
use super::choose_token::choose_token;
use super::generation_options::GenerationOptions;
use super::incremental_decoder::{IncrementalDecoder, NewText};
use crate::error::{Result, TrainError};
use crate::task::{ForwardContext, LanguageTask};
use dataset::{Task, Tokenizer};
use models::{Gpt, KvCache};
use std::ops::ControlFlow;
use tape::device::with_autorelease_pool;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng, Tape};

/// What generates text: a network with its weights and its tokenizer.
pub(crate) struct Generator<'m> {
    pub network: &'m Gpt,
    pub parameters: &'m Parameters,
    pub kernels: Kernels,
    pub cancel: Cancel,
    pub tokenizer: &'m Tokenizer,
    /// Most tokens that the network reads at once.
    pub limit: usize,
    /// The tokens that end a text.
    pub ends: &'m [u32],
    /// Whether adapters are left out, so that the network is the one that they were added to.
    pub is_without_adapters: bool,
}

/// A generated text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generated {
    pub text: String,
    /// Tokens of the text. The one that ends it is not counted.
    pub tokens: usize,
    pub end: TextEnd,
}

/// Why a generated text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextEnd {
    /// The model ended it, or a stop text.
    Complete,
    /// It has the most tokens that were asked for.
    Limit,
    /// The caller wanted no more.
    Interrupted,
}

impl<'m> Generator<'m> {
    /// A generator with the weights of a context.
    ///
    /// # Errors
    /// Its network is no language model.
    pub fn new(
        context: &ForwardContext<'m>,
        tokenizer: &'m Tokenizer,
        ends: &'m [u32],
        limit: usize,
    ) -> Result<Self> {
        Ok(Generator {
            network: LanguageTask::network(context)?,
            parameters: context.parameters,
            kernels: context.kernels,
            cancel: context.cancel.clone(),
            tokenizer,
            limit,
            ends,
            is_without_adapters: false,
        })
    }

    /// The scores of all tokens after those in `past` and `new`.
    fn next_scores(&self, new: &[u32], past: &mut KvCache) -> Result<Vec<f64>> {
        let scores = with_autorelease_pool(|| -> Result<Vec<f64>> {
            let tape = Tape::forward_only(self.parameters, self.cancel.clone(), self.kernels);
            let tape = if self.is_without_adapters {
                tape.without_adapters()
            } else {
                tape
            };
            let scores = self.network.next_scores_cached(&tape, new, past)?;
            Ok(to_f64(scores.tensor())?)
        })?;
        if scores.iter().any(|score| score.is_nan()) {
            return Err(TrainError::NotTrainable {
                message: "the scores of the model are NaN: its weights are damaged, or too large for this precision".to_owned(),
            });
        }
        Ok(scores)
    }

    /// How many of the newest tokens the network reads after the prompt, if the cache has `cached`
    /// tokens. The prompt may fill the context; a text that is read again leaves half of it free.
    fn tokens_to_read(&self, cached: usize) -> usize {
        if cached >= self.limit {
            (self.limit / 2).max(1)
        } else if self.network.longest_unstretched() == Some(cached) {
            cached + 1
        } else {
            1
        }
    }

    /// The text that follows the tokens `ids`, of which there is at least one. Calls `on_text` with
    /// each part of it as soon as it is certain. The part is empty if no text is certain yet. When
    /// the context is full, the second half of the text is read again. If the cancel flag is
    /// raised, the text ends in the middle of a forward pass.
    pub fn generate(
        &self,
        mut ids: Vec<u32>,
        options: &GenerationOptions,
        mut on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Generated> {
        let draws = Rng::new(options.seed).site("generate");
        let prompt = ids.len();
        let (mut past, mut text) = (self.network.new_cache(), String::new());
        let mut stream = IncrementalDecoder::new(self.tokenizer, &options.stop);
        let mut end = TextEnd::Limit;
        for number in 0..options.tokens {
            let cached = past.tokens();
            let read = if number == 0 {
                self.limit
            } else {
                self.tokens_to_read(cached)
            };
            if read > 1 || cached >= self.limit {
                past = self.network.new_cache();
            }
            let new = &ids[ids.len().saturating_sub(read)..];
            let scores = match self.next_scores(new, &mut past) {
                Err(error) if error.is_cancelled() => {
                    end = TextEnd::Interrupted;
                    break;
                }
                scores => scores?,
            };
            let chance = draws.uniform(number as u64);
            let next = choose_token(scores, &ids, options, chance);
            if self.ends.contains(&next) {
                end = TextEnd::Complete;
                break;
            }
            ids.push(next);
            let (part, is_last) = match stream.push(next) {
                NewText::Text(part) => (part, false),
                NewText::Last(part) => (part, true),
            };
            text.push_str(&part);
            let goes_on = on_text(&part).is_continue();
            if is_last || !goes_on {
                let end = if is_last {
                    TextEnd::Complete
                } else {
                    TextEnd::Interrupted
                };
                let tokens = ids.len() - prompt;
                return Ok(Generated { text, tokens, end });
            }
        }
        let rest = stream.finish();
        text.push_str(&rest);
        let _ = on_text(&rest);
        let tokens = ids.len() - prompt;
        Ok(Generated { text, tokens, end })
    }
}

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
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<String> {
        if self.task() != Task::LanguageModel {
            return Err(self.wrong_task("continue a text"));
        }
        let ends: Vec<u32> = self.tokenizer.boundary().into_iter().collect();
        let mut ids = ends.clone();
        ids.extend(self.tokenizer.encode(prompt)?);
        if ids.is_empty() {
            ids.push(0);
        }
        let limit = self.plan.input_size as usize;
        let generator = Generator::new(&self.context(), &self.tokenizer, &ends, limit)?;
        Ok(generator.generate(ids, options, on_text)?.text)
    }
}
