//! AdamW (Loshchilov and Hutter 2019): `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g²`,
//! `p = (1 - rate decay) p - rate (m / c1) / (sqrt(v / c2) + epsilon)` with `c = 1 - bᵗ` of step t, in one pass.
//!
//! Refuses to know which parameter it works on: what differs by parameter stands in the rule.

use super::{CHUNK, Element};
use crate::cpu::{Float, View, wide, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use candle_core::Tensor;
use rayon::prelude::*;

/// Numbers of one AdamW step (Loshchilov and Hutter 2019).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay; 0 for norms and biases.
    pub weight_decay: f64,
    /// Steps done, this one included.
    pub step: u64,
    /// Factor on the gradient: one over the weight of the effective batch, times clipping.
    pub gradient_factor: f64,
}

impl AdamW {
    /// What the first steps' moments lack of their full size: `1 - bᵗ`.
    pub(super) fn corrections(&self) -> (f64, f64) {
        let t = self.step as f64;
        (1.0 - self.beta1.powf(t), 1.0 - self.beta2.powf(t))
    }
}

/// One AdamW step on a parameter with its first and second moment.
pub fn adamw(
    parameter: &mut Tensor,
    first: &mut Tensor,
    second: &mut Tensor,
    gradient: &Tensor,
    rule: AdamW,
) -> Result<()> {
    let (correct1, correct2) = rule.corrections();
    if !crate::cpu::is_fused(parameter) {
        let g = (gradient * rule.gradient_factor)?;
        *first = ((&*first * rule.beta1)? + (&g * (1.0 - rule.beta1))?)?;
        *second = ((&*second * rule.beta2)? + (g.sqr()? * (1.0 - rule.beta2))?)?;
        let root = ((&*second / correct2)?.sqrt()? + rule.epsilon)?;
        let step = ((&*first / root)? * (rule.learning_rate / correct1))?;
        *parameter = ((&*parameter * (1.0 - rule.learning_rate * rule.weight_decay))? - step)?;
        return Ok(());
    }
    let gradient = gradient.contiguous()?;
    with_float!("adamw", parameter, T => {
        let g = View::<T>::of("adamw", &gradient)?;
        let (beta1, beta2) = (T::of(rule.beta1), T::of(rule.beta2));
        let (rest1, rest2) = (T::of(1.0 - rule.beta1), T::of(1.0 - rule.beta2));
        let (keep, rate) = (T::of(1.0 - rule.learning_rate * rule.weight_decay), T::of(rule.learning_rate / correct1));
        let (root2, epsilon, factor) = (T::of(1.0 / correct2), T::of(rule.epsilon), T::of(rule.gradient_factor));
        with_slice_mut(parameter, |p| with_slice_mut(first, |m| with_slice_mut(second, |v| {
            let (p, m, v) = (<T as Element>::lent(p)?, <T as Element>::lent(m)?, <T as Element>::lent(v)?);
            p.par_chunks_mut(CHUNK).zip(m.par_chunks_mut(CHUNK)).zip(v.par_chunks_mut(CHUNK)).zip(g.par_chunks(CHUNK)).for_each(|(((p, m), v), g)| {
                wide(#[inline(always)] || for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
                    let g = g * factor;
                    *m = beta1 * *m + rest1 * g;
                    *v = beta2 * *v + rest2 * g * g;
                    *p = *p * keep - rate * *m / ((*v * root2).sqrt() + epsilon);
                });
            });
            Ok(())
        })))?;
        Ok(())
    })
}
