//! Generates text with a language model, token by token. The same prompt, options and seed give the
//! same text. Keys and values are cached, so each token costs a forward pass over itself alone.

use super::TrainedModel;
use crate::error::Result;
use crate::task::LanguageTask;
use dataset::Task;
use tape::Rng;
use tape::device::with_autorelease_pool;
use tape::inplace::to_f64;

/// How text is generated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerationOptions {
    /// Most tokens to generate.
    pub tokens: usize,
    /// Logits are divided by it. Below 1, probable tokens become more probable; at 0, the most
    /// probable token is always chosen.
    pub temperature: f64,
    /// Samples from this many of the most probable tokens only; from all if absent.
    pub top_k: Option<usize>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl TrainedModel {
    /// The text that follows `prompt`. It ends early if the model ends its document. When the
    /// context is full, the second half of the text is read again.
    ///
    /// # Errors
    /// The model is not a language model.
    pub fn generate(&self, prompt: &str, options: &GenerationOptions) -> Result<String> {
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
        let (prompt_tokens, limit) = (ids.len(), self.plan.input_size as usize);
        let draws = Rng::new(options.seed).site("generate");
        let mut past = network.new_cache();
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
            let next = sample(&scores, options, draws.uniform(number as u64));
            if Some(next) == boundary {
                break;
            }
            ids.push(next);
        }
        Ok(self.tokenizer.decode(&ids[prompt_tokens..]))
    }
}

/// The token that `chance`, in `0.0..1.0`, selects.
fn sample(scores: &[f64], options: &GenerationOptions, chance: f64) -> u32 {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // The most probable first; of equal ones the smaller token.
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let best = order.first().copied().unwrap_or(0);
    if options.temperature <= 0.0 {
        return best as u32;
    }
    order.truncate(options.top_k.unwrap_or(order.len()).max(1));
    let weight = |&token: &usize| ((scores[token] - scores[best]) / options.temperature).exp();
    let weights: Vec<f64> = order.iter().map(weight).collect();
    let mut left = chance * weights.iter().sum::<f64>();
    for (token, weight) in order.iter().zip(&weights) {
        left -= weight;
        if left < 0.0 {
            return *token as u32;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(temperature: f64, top_k: Option<usize>) -> GenerationOptions {
        GenerationOptions {
            tokens: 1,
            temperature,
            top_k,
            seed: 0,
        }
    }

    #[test]
    fn tokens_are_sampled_by_their_probability() {
        let scores: Vec<f64> = [0.5f64, 0.2, 0.3].iter().map(|share| share.ln()).collect();
        let check = |options: GenerationOptions, chance: f64, token: u32| {
            assert_eq!(
                sample(&scores, &options, chance),
                token,
                "{options:?} {chance}"
            );
        };
        for (chance, token) in [
            (0.0, 0),
            (0.49, 0),
            (0.51, 2),
            (0.79, 2),
            (0.81, 1),
            (0.999, 1),
        ] {
            check(options(1.0, None), chance, token);
        }
        check(options(0.0, None), 0.99, 0);
        check(options(1.0, Some(1)), 0.99, 0);
        // Of two: 0.5 and 0.3 make 0.8.
        check(options(1.0, Some(2)), 0.62, 0);
        check(options(1.0, Some(2)), 0.64, 2);
        // Squared shares: 0.25, 0.04, 0.09 of 0.38.
        check(options(0.5, None), 0.65, 0);
        check(options(0.5, None), 0.67, 2);
    }
}
