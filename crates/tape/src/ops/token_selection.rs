//! Selection of tokens: a binary choice per token, with a gradient (Maddison et al. 2016, the
//! binary concrete distribution; Jang et al. 2016). `z = x + ln u - ln(1 - u)` with `u` uniform,
//! one number per token, keyed by seed, step, sample and place. The soft form is `p = sigmoid((z -
//! nu) / temperature)`. Without a quota, `nu = 0`, and a token is kept if `z > 0`. If a sample is
//! to keep exactly k tokens, `nu` makes its `p` add up to k, and the k largest `z` are kept (the
//! first ones in a tie). The hard form is straight-through: the output is 1 for kept tokens and 0
//! for the rest, and the gradient is that of `p`.
//!
//! Backward: `w = p (1 - p) / temperature`; without a quota `dx = w dy`; for exactly k, by the
//! implicit function theorem on `sum p = k`, `dx = w (dy - sum w dy / sum w)`. Padding is 0 and
//! gets no gradient. The few values are computed on the host, in f64, one sample after the other: a
//! GPU is synchronized once in the forward and once in the backward pass. The noise is added to the
//! buffer of `z`, so there is no tensor of it. Saved: `w`, as large as the logits.

use super::gumbel_softmax::Choice;
use super::noise_key::{Noise, NoiseKey};
use super::{axes, expect_filled, misfit};
use crate::convert_dtype::host_tensor;
use crate::error::{Result, TapeError};
use crate::inplace::to_f64;
use crate::tape::{Tape, Value};

/// The length of a sample, and the number of tokens to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Number of tokens; the rest is padding.
    pub tokens: usize,
    /// Exact number of tokens to keep; `None` keeps those with `z > 0`.
    pub kept: Option<usize>,
}

/// How tokens are selected.
#[derive(Debug, Clone, Copy)]
pub struct KeepRule<'a> {
    /// One quota per sample.
    pub quotas: &'a [Quota],
    /// Softness of `p`; a small value comes close to the hard choice.
    pub temperature: f64,
    /// The form of the output.
    pub choice: Choice,
    /// Key of the noise; `None` for no noise.
    pub noise: Option<NoiseKey<'a>>,
}

impl KeepRule<'_> {
    fn expect_fit(&self, logits: &Value, samples: usize, tokens: usize) -> Result<()> {
        let fits = |quota: &Quota| {
            quota.tokens <= tokens && quota.kept.is_none_or(|kept| kept <= quota.tokens)
        };
        if self.quotas.len() != samples || !self.quotas.iter().all(fits) {
            let expected = format!(
                "one sample for each of the {} quotas, with enough tokens,",
                self.quotas.len()
            );
            return Err(misfit("keep", "logits", expected, logits));
        }
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            return Err(TapeError::Number {
                op: "keep",
                what: "the temperature".to_owned(),
                expected: "a finite number above 0",
                found: self.temperature,
            });
        }
        Ok(())
    }
}

impl Tape<'_> {
    /// Selects among the tokens of `logits` [samples, tokens]: 1 for a kept token, 0 for a dropped
    /// one.
    ///
    /// # Errors
    /// The quotas do not fit the logits, or the temperature is not above 0.
    pub fn keep(&self, logits: &Value, rule: &KeepRule) -> Result<Value> {
        self.poll()?;
        let [samples, tokens] = axes("keep", "logits", logits)?;
        expect_filled("keep", "logits", logits)?;
        rule.expect_fit(logits, samples, tokens)?;
        let mut z = to_f64(logits.tensor())?;
        if let Some(key) = &rule.noise {
            let noise = Noise::new("keep", logits, key)?;
            for (z, stream) in z.chunks_exact_mut(tokens).zip(noise.by_sample()) {
                z.iter_mut()
                    .enumerate()
                    .for_each(|(place, z)| *z += logistic(stream.uniform(place as u64)));
            }
        }
        let mut w = vec![0.0; z.len()];
        for ((z, w), quota) in z
            .chunks_exact_mut(tokens)
            .zip(w.chunks_exact_mut(tokens))
            .zip(rule.quotas)
        {
            choose(z, w, quota, rule);
        }
        let (dtype, device) = (logits.tensor().dtype(), logits.tensor().device().clone());
        let dims = [samples, tokens];
        let y = host_tensor(z, &dims, dtype, &device)?;
        if !self.records(&[logits]) {
            return Ok(Value::constant(y));
        }
        let w = host_tensor(w, &dims, dtype, &device)?;
        let (id, exact): (_, Vec<bool>) = (
            logits.id(),
            rule.quotas.iter().map(|q| q.kept.is_some()).collect(),
        );
        Ok(self.push(y, &[&w.clone()], move |dy, sink| {
            let (w, mut dx) = (to_f64(&w)?, to_f64(&dy)?);
            let rows = dx.chunks_exact_mut(tokens).zip(w.chunks_exact(tokens));
            for ((dx, w), exact) in rows.zip(exact) {
                let all: f64 = w.iter().sum();
                let mean = if exact && all > 0.0 {
                    dx.iter().zip(w).map(|(dy, w)| dy * w).sum::<f64>() / all
                } else {
                    0.0
                };
                dx.iter_mut().zip(w).for_each(|(d, w)| *d = w * (*d - mean));
            }
            sink.add_owned(id, host_tensor(dx, &dims, dtype, &device)?)
        }))
    }
}

/// Standard logistic noise from a uniform number in `0.0..1.0`, which is shifted by half a step so
/// that the result is finite.
fn logistic(uniform: f64) -> f64 {
    let uniform = (uniform + 0.5 / (1u64 << 53) as f64).min(1.0 - f64::EPSILON / 2.0);
    uniform.ln() - (1.0 - uniform).ln()
}

/// Turns scores into the choice, and writes the slopes of the soft form to `w`.
fn choose(z: &mut [f64], w: &mut [f64], quota: &Quota, rule: &KeepRule) {
    let (z, padding) = z.split_at_mut(quota.tokens);
    padding.fill(0.0);
    let threshold = quota
        .kept
        .map_or(0.0, |kept| level(z, kept, rule.temperature));
    let soft = |z: f64| sigmoid((z - threshold) / rule.temperature);
    for (w, z) in w.iter_mut().zip(z.iter()) {
        let p = soft(*z);
        *w = p * (1.0 - p) / rule.temperature;
    }
    match (rule.choice, quota.kept) {
        (Choice::Soft, _) => z.iter_mut().for_each(|z| *z = soft(*z)),
        (Choice::Hard, None) => z.iter_mut().for_each(|z| *z = f64::from(*z > 0.0)),
        (Choice::Hard, Some(kept)) => {
            let mut order: Vec<usize> = (0..z.len()).collect();
            order.sort_by(|&a, &b| z[b].total_cmp(&z[a]).then(a.cmp(&b)));
            z.fill(0.0);
            order[..kept].iter().for_each(|&place| z[place] = 1.0);
        }
    }
}

/// The `nu` with `sum sigmoid((z - nu) / temperature) = kept`, by bisection until the ends meet. To
/// keep none or all, it is so far off that all slopes vanish.
fn level(z: &[f64], kept: usize, temperature: f64) -> f64 {
    let (low, high) = z
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), z| {
            (low.min(*z), high.max(*z))
        });
    // Even a probability of one half in a sample with one more token is reached well within this
    // range.
    let reach = temperature * 800.0;
    let (mut low, mut high) = (low - reach, high + reach);
    if !(low.is_finite() && high.is_finite()) {
        return 0.0;
    }
    for _ in 0..200 {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        let sum: f64 = z.iter().map(|z| sigmoid((z - middle) / temperature)).sum();
        if sum > kept as f64 {
            low = middle
        } else {
            high = middle
        }
    }
    low + (high - low) / 2.0
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The probability of each of `logits` to be kept, without noise, if `kept` of them are; for
/// metrics and policy gradients.
pub fn keep_probabilities(logits: &[f64], kept: Option<usize>) -> Vec<f64> {
    let threshold = kept.map_or(0.0, |kept| level(logits, kept, 1.0));
    logits.iter().map(|z| sigmoid(z - threshold)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_probabilities_add_up_to_the_quota() {
        let logits = [3.0, -1.0, 0.5, 40.0, -7.0, 0.0];
        for kept in 1..6 {
            let sum: f64 = keep_probabilities(&logits, Some(kept)).iter().sum();
            assert!((sum - kept as f64).abs() < 1e-9, "{kept}: {sum}");
        }
        assert_eq!(keep_probabilities(&[0.0], None), [0.5]);
    }

    #[test]
    fn logistic_noise_is_finite_everywhere() {
        for uniform in [0.0, 0.5, 1.0 - f64::EPSILON / 2.0] {
            assert!(logistic(uniform).is_finite(), "{uniform}");
        }
        assert!(logistic(0.5).abs() < 1e-9);
    }
}
