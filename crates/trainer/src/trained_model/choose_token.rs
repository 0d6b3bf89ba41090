//! Chooses the next token of a generated text from the scores of a language model.

use super::generation_options::GenerationOptions;
use std::collections::HashSet;

/// The token that `chance`, in `0.0..1.0`, selects from these logits. `seen` are the tokens of the
/// text so far.
///
/// The repetition penalty comes first, then the temperature and the limits `top_k`, `top_p` and
/// `min_p`, each among the tokens that the one before has left. The most probable token is never
/// left out.
pub(super) fn choose_token(
    mut logits: Vec<f64>,
    seen: &[u32],
    options: &GenerationOptions,
    chance: f64,
) -> u32 {
    penalize(&mut logits, seen, options.repetition_penalty);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // The most probable first; of equal ones the smaller token.
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let best = order.first().copied().unwrap_or(0);
    if options.temperature <= 0.0 {
        return best as u32;
    }
    order.truncate(options.top_k.unwrap_or(order.len()).max(1));
    // Relative to the highest probability.
    let weight = |&token: &usize| ((logits[token] - logits[best]) / options.temperature).exp();
    let mut weights: Vec<f64> = order.iter().map(weight).collect();
    if let Some(top_p) = options.top_p {
        weights.truncate(count_with_share(&weights, top_p));
    }
    if let Some(min_p) = options.min_p {
        let likely = weights.iter().take_while(|weight| **weight >= min_p);
        let count = likely.count().max(1);
        weights.truncate(count);
    }
    let mut left = chance * weights.iter().sum::<f64>();
    for (token, weight) in order.iter().zip(&weights) {
        left -= weight;
        if left < 0.0 {
            return *token as u32;
        }
    }
    best as u32
}

fn penalize(logits: &mut [f64], seen: &[u32], penalty: f64) {
    if penalty == 1.0 {
        return;
    }
    let seen: HashSet<u32> = seen.iter().copied().collect();
    for token in seen {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = if *logit > 0.0 {
                *logit / penalty
            } else {
                *logit * penalty
            };
        }
    }
}

/// How many of the first weights have this share of all of them together; at least 1.
fn count_with_share(weights: &[f64], share: f64) -> usize {
    let mut missing = share * weights.iter().sum::<f64>();
    let before_enough = weights.iter().take_while(|weight| {
        let is_missing = missing > 0.0;
        missing -= **weight;
        is_missing
    });
    before_enough.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which token a chance selects of three with the probabilities 0.5, 0.2 and 0.3.
    fn check(options: GenerationOptions, chance: f64, token: u32) {
        let logits = [0.5f64, 0.2, 0.3].iter().map(|share| share.ln()).collect();
        let chosen = choose_token(logits, &[], &options, chance);
        assert_eq!(chosen, token, "{options:?} {chance}");
    }

    #[test]
    fn tokens_are_sampled_by_their_probability() {
        let all = GenerationOptions::default();
        for (chance, token) in [
            (0.0, 0),
            (0.49, 0),
            (0.51, 2),
            (0.79, 2),
            (0.81, 1),
            (0.999, 1),
        ] {
            check(all.clone(), chance, token);
        }
        let temperature = |temperature| GenerationOptions {
            temperature,
            ..all.clone()
        };
        check(temperature(0.0), 0.99, 0);
        // Squared shares: 0.25, 0.04, 0.09 of 0.38.
        check(temperature(0.5), 0.65, 0);
        check(temperature(0.5), 0.67, 2);
    }

    #[test]
    fn improbable_tokens_are_left_out() {
        let all = GenerationOptions::default();
        let top_k = |k| GenerationOptions {
            top_k: Some(k),
            ..all.clone()
        };
        check(top_k(1), 0.99, 0);
        // Of two: 0.5 and 0.3 make 0.8.
        check(top_k(2), 0.62, 0);
        check(top_k(2), 0.64, 2);
        let top_p = |p| GenerationOptions {
            top_p: Some(p),
            ..all.clone()
        };
        check(top_p(0.0), 0.99, 0);
        check(top_p(0.49), 0.99, 0);
        check(top_p(0.51), 0.99, 2);
        check(top_p(0.79), 0.62, 0);
        check(top_p(1.0), 0.999, 1);
        let min_p = |p| GenerationOptions {
            min_p: Some(p),
            ..all.clone()
        };
        // The others have 0.6 and 0.4 of the highest probability.
        check(min_p(0.61), 0.99, 0);
        check(min_p(0.59), 0.99, 2);
        check(min_p(0.41), 0.99, 2);
        check(min_p(0.39), 0.99, 1);
        check(min_p(1.0), 0.99, 0);
    }

    #[test]
    fn tokens_that_the_text_has_become_less_probable() {
        let options = GenerationOptions {
            temperature: 0.0,
            repetition_penalty: 2.0,
            ..GenerationOptions::default()
        };
        let chosen =
            |logits: [f64; 3], seen: &[u32]| choose_token(logits.to_vec(), seen, &options, 0.0);
        assert_eq!(chosen([3.0, 2.0, -1.0], &[]), 0);
        assert_eq!(chosen([3.0, 2.0, -1.0], &[0, 0]), 1, "3 becomes 1.5, once");
        assert_eq!(chosen([-1.0, -1.5, -4.0], &[0]), 1, "-1 becomes -2");
        assert_eq!(chosen([3.0, 2.0, 1.0], &[0, 7]), 1, "there is no token 7");
    }
}
