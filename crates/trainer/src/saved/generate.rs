//! A language model that writes on: one token after the other, each drawn from what the model thinks likely. The same prompt,
//! wishes and seed give the same text. What was read is kept, so a token costs a pass over itself alone.

use super::SavedRun;
use crate::error::Result;
use crate::models::Network;
use tape::inplace::to_f64;
use tape::{Cancel, Rng};

/// How a text is to be written on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wording {
    /// Most tokens written.
    pub tokens: usize,
    /// Scores are divided by it: below 1 the likely becomes likelier; at 0 the likeliest token is always taken.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are drawn from; all where there is none.
    pub top_k: Option<usize>,
    /// Seed of the draws.
    pub seed: u64,
}

impl SavedRun {
    /// What follows `prompt`, without it. Ends early where the model ends its document. A text that the model has no room for is
    /// read again from where its last half begins, each time that it is full.
    ///
    /// # Errors
    /// The run is no language model.
    pub fn generate(&self, prompt: &str, wording: &Wording) -> Result<String> {
        let Network::Gpt(network) = &self.learner.network else {
            return Err(self.wrong_task("a prompt"));
        };
        let boundary = self.tokenizer.boundary();
        let mut ids: Vec<u32> = boundary.into_iter().collect();
        ids.extend(self.tokenizer.encode(prompt)?);
        if ids.is_empty() {
            ids.push(0);
        }
        let (first, room) = (ids.len(), self.plan.image_size as usize);
        let work = self.learner.evaluation_work(Cancel::default());
        let draws = Rng::new(wording.seed).site("generate");
        let mut past = network.past();
        for number in 0..wording.tokens {
            // A new beginning leaves room behind it; a prompt is read as far as there is room.
            let most = if number == 0 { room } else { (room / 2).max(1) };
            if past.tokens() >= room {
                past = network.past();
            }
            let new = match past.tokens() {
                0 => &ids[ids.len().saturating_sub(most)..],
                _ => &ids[ids.len() - 1..],
            };
            let scores = network.follow(&work.forward_only(), new, &mut past)?;
            let scores = to_f64(scores.tensor())?;
            let next = drawn(&scores, wording, draws.uniform(number as u64));
            if Some(next) == boundary {
                break;
            }
            ids.push(next);
        }
        Ok(self.tokenizer.decode(&ids[first..]))
    }
}

/// The token that `chance`, from 0 to below 1, falls on.
fn drawn(scores: &[f64], wording: &Wording, chance: f64) -> u32 {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // The likeliest first; of equals the smaller token.
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let best = order.first().copied().unwrap_or(0);
    if wording.temperature <= 0.0 {
        return best as u32;
    }
    order.truncate(wording.top_k.unwrap_or(order.len()).max(1));
    let weight = |&token: &usize| ((scores[token] - scores[best]) / wording.temperature).exp();
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

    fn wording(temperature: f64, top_k: Option<usize>) -> Wording {
        Wording {
            tokens: 1,
            temperature,
            top_k,
            seed: 0,
        }
    }

    #[test]
    fn chances_fall_on_tokens_by_their_shares() {
        let scores: Vec<f64> = [0.5f64, 0.2, 0.3].iter().map(|share| share.ln()).collect();
        let check = |wording: Wording, chance: f64, token: u32| {
            assert_eq!(
                drawn(&scores, &wording, chance),
                token,
                "{wording:?} {chance}"
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
            check(wording(1.0, None), chance, token);
        }
        check(wording(0.0, None), 0.99, 0);
        check(wording(1.0, Some(1)), 0.99, 0);
        // Of two: 0.5 and 0.3 make 0.8.
        check(wording(1.0, Some(2)), 0.62, 0);
        check(wording(1.0, Some(2)), 0.64, 2);
        // Squared shares: 0.25, 0.04, 0.09 of 0.38.
        check(wording(0.5, None), 0.65, 0);
        check(wording(0.5, None), 0.67, 2);
    }
}
