//! AdamW (Loshchilov and Hutter 2019): `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g²`, `p = (1 -
//! rate decay) p - rate (m / c1) / (sqrt(v / c2) + epsilon)` with `c = 1 - bᵗ` of step t, in one
//! pass.
//!
//! State: two moments with the shape and type of the parameter.

use super::step_hyperparameters::AdamWStep;
use super::{CHUNK, Element};
use crate::cpu::{Float, View, wide, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use crate::kernels::copies::contiguous;
use candle_core::Tensor;
use rayon::prelude::*;

/// One AdamW step on a parameter with its first and second moments.
pub fn adamw(
    parameter: &mut Tensor,
    first: &mut Tensor,
    second: &mut Tensor,
    gradient: &Tensor,
    rule: AdamWStep,
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
    let gradient = contiguous(gradient)?;
    with_float!("adamw", parameter, T => {
        let g = View::<T>::new("adamw", &gradient)?;
        let (beta1, beta2) = (T::from_constant(rule.beta1), T::from_constant(rule.beta2));
        let (rest1, rest2) = (T::from_constant(1.0 - rule.beta1), T::from_constant(1.0 - rule.beta2));
        let (keep, rate) = (T::from_constant(1.0 - rule.learning_rate * rule.weight_decay), T::from_constant(rule.learning_rate / correct1));
        let (root2, epsilon, factor) = (T::from_constant(1.0 / correct2), T::from_constant(rule.epsilon), T::from_constant(rule.gradient_factor));
        with_slice_mut(parameter, |p| with_slice_mut(first, |m| with_slice_mut(second, |v| {
            let (p, m, v) = (<T as Element>::borrowed(p)?, <T as Element>::borrowed(m)?, <T as Element>::borrowed(v)?);
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
