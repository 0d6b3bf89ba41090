//! Which tokens of a sequence are kept: one choice of two a token, with a gradient (Maddison et al. 2016, the binary concrete
//! distribution; Jang et al. 2016). `z = x + ln u - ln(1 - u)` with `u` uniform, one number a token, keyed by seed, step, sample
//! and place. Soft, `p = sigmoid((z - nu) / temperature)`. Free, `nu = 0`, and a token is kept where `z > 0`. Where a sample is to
//! keep exactly k tokens, `nu` is what makes its `p` add up to k, and the k largest `z` are kept (of equal ones the first).
//! Straight through, the output is 1 for what is kept and 0 for the rest, and the gradient is that of `p`.
//!
//! Backward: `w = p (1 - p) / temperature`, free `dx = w dy`; of exactly k, by the implicit function theorem on `sum p = k`,
//! `dx = w (dy - sum w dy / sum w)`. What lies beyond a sample's length is 0 and gets no gradient. The few numbers are worked on
//! the host, in f64, one sample after the other: a GPU is waited for once in forward and once in backward. The noise is drawn
//! into the buffer that `z` and then `p` are computed in: there is no tensor of it. Saved: `w`, as large as the logits.

use super::gumbel_softmax::Choice;
use super::noise::{Noise, NoiseKey};
use super::{axes, expect_filled};
use crate::dtype::host_tensor;
use crate::error::{Result, TapeError};
use crate::inplace::to_f64;
use crate::tape::{Tape, Value};

/// How many tokens a sample has and keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Tokens; those beyond are padding.
    pub tokens: usize,
    /// Exactly so many are kept; absent, as many as want to be.
    pub kept: Option<usize>,
}

/// How tokens are chosen.
#[derive(Debug, Clone, Copy)]
pub struct KeepRule<'a> {
    /// One a sample.
    pub quotas: &'a [Quota],
    /// Softness of `p`: small, it is nearly the hard choice.
    pub temperature: f64,
    /// What is given forward.
    pub choice: Choice,
    /// Names the noise; without one there is none.
    pub noise: Option<NoiseKey<'a>>,
}

impl Tape<'_> {
    /// Chooses among the tokens of `logits` [samples, tokens]: 1 for a token that is kept, 0 for one that is dropped.
    ///
    /// # Errors
    /// The quotas do not fit the logits, or the temperature is not above 0.
    pub fn keep(&self, logits: &Value, rule: &KeepRule) -> Result<Value> {
        self.poll()?;
        let [samples, tokens] = axes("keep", "logits", logits)?;
        expect_filled("keep", "logits", logits)?;
        let fits = |quota: &Quota| {
            quota.tokens <= tokens && quota.kept.is_none_or(|kept| kept <= quota.tokens)
        };
        if rule.quotas.len() != samples || !rule.quotas.iter().all(fits) {
            return Err(TapeError::Shape {
                op: "keep",
                what: "logits".to_owned(),
                expected: format!("the tokens of {} quotas", rule.quotas.len()),
                found: logits.tensor().shape().clone(),
            });
        }
        if !(rule.temperature > 0.0 && rule.temperature.is_finite()) {
            return Err(TapeError::Number {
                op: "keep",
                what: "the temperature".to_owned(),
                expected: "a finite number above 0",
                found: rule.temperature,
            });
        }
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
                let mean = match exact && all > 0.0 {
                    true => dx.iter().zip(w).map(|(dy, w)| dy * w).sum::<f64>() / all,
                    false => 0.0,
                };
                dx.iter_mut().zip(w).for_each(|(d, w)| *d = w * (*d - mean));
            }
            sink.add_owned(id, host_tensor(dx, &dims, dtype, &device)?)
        }))
    }
}

/// Standard logistic noise of a uniform number in `0.0..1.0`, which is moved by half a step so that it is finite.
fn logistic(uniform: f64) -> f64 {
    let uniform = (uniform + 0.5 / (1u64 << 53) as f64).min(1.0 - f64::EPSILON / 2.0);
    uniform.ln() - (1.0 - uniform).ln()
}

/// Turns scores into the choice, and gives the slopes of the soft one.
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

/// The `nu` with `sum sigmoid((z - nu) / temperature) = kept`, by halving until the two ends meet. Of none or all it is far off,
/// so that nothing slopes.
fn level(z: &[f64], kept: usize, temperature: f64) -> f64 {
    let (low, high) = z
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), z| {
            (low.min(*z), high.max(*z))
        });
    // A share of one half in a sample of one token more is reached well within these.
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
        match sum > kept as f64 {
            true => low = middle,
            false => high = middle,
        }
    }
    low + (high - low) / 2.0
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Chances that each of `logits` is kept when `kept` of them are, without noise, by the same rule: for measures and for policy
/// gradients.
pub fn keep_probabilities(logits: &[f64], kept: Option<usize>) -> Vec<f64> {
    let threshold = kept.map_or(0.0, |kept| level(logits, kept, 1.0));
    logits.iter().map(|z| sigmoid(z - threshold)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_add_up_to_what_is_kept() {
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
