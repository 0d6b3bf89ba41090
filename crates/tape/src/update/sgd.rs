//! SGD with momentum: `b = momentum b + g + decay p`, `p = p - rate b`, in one pass.

use super::{CHUNK, Element};
use crate::cpu::{Float, View, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use candle_core::Tensor;
use rayon::prelude::*;

/// Numbers of one SGD step with Nesterov-free momentum: `b = momentum b + g + decay p`, `p -= rate b`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the momentum buffer.
    pub momentum: f64,
    /// Weight decay, added to the gradient; 0 for norms and biases.
    pub weight_decay: f64,
    /// Factor on the gradient, as in [`AdamW`].
    pub gradient_factor: f64,
}

/// One SGD step on a parameter with its momentum buffer.
pub fn sgd(
    parameter: &mut Tensor,
    momentum: &mut Tensor,
    gradient: &Tensor,
    rule: Sgd,
) -> Result<()> {
    if !crate::cpu::is_fused(parameter) {
        let g = ((gradient * rule.gradient_factor)? + (&*parameter * rule.weight_decay)?)?;
        *momentum = ((&*momentum * rule.momentum)? + g)?;
        *parameter = (&*parameter - (&*momentum * rule.learning_rate)?)?;
        return Ok(());
    }
    let gradient = gradient.contiguous()?;
    with_float!("sgd", parameter, T => {
        let g = View::<T>::of("sgd", &gradient)?;
        let (decay, keep) = (T::of(rule.weight_decay), T::of(rule.momentum));
        let (rate, factor) = (T::of(rule.learning_rate), T::of(rule.gradient_factor));
        with_slice_mut(parameter, |p| with_slice_mut(momentum, |b| {
            let (p, b) = (<T as Element>::lent(p)?, <T as Element>::lent(b)?);
            p.par_chunks_mut(CHUNK).zip(b.par_chunks_mut(CHUNK)).zip(g.par_chunks(CHUNK)).for_each(|((p, b), g)| {
                for ((p, b), &g) in p.iter_mut().zip(b).zip(g) {
                    *b = keep * *b + g * factor + decay * *p;
                    *p -= rate * *b;
                }
            });
            Ok(())
        }))?;
        Ok(())
    })
}
