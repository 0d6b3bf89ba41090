//! SGD with momentum, without Nesterov: `b = momentum b + g + decay p`, `p = p - rate b`, in one
//! pass. State: one momentum buffer with the shape and type of the parameter.

use super::step_hyperparameters::SgdStep;
use super::{CHUNK, Element};
use crate::cpu::{Float, View, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use crate::kernels::copies::contiguous;
use candle_core::Tensor;
use rayon::prelude::*;

/// One SGD step on a parameter with its momentum buffer.
pub fn sgd(
    parameter: &mut Tensor,
    momentum: &mut Tensor,
    gradient: &Tensor,
    rule: SgdStep,
) -> Result<()> {
    if !crate::cpu::is_fused(parameter) {
        let g = ((gradient * rule.gradient_factor)? + (&*parameter * rule.weight_decay)?)?;
        *momentum = ((&*momentum * rule.momentum)? + g)?;
        *parameter = (&*parameter - (&*momentum * rule.learning_rate)?)?;
        return Ok(());
    }
    let gradient = contiguous(gradient)?;
    with_float!("sgd", parameter, T => {
        let g = View::<T>::new("sgd", &gradient)?;
        let (decay, keep) = (T::from_constant(rule.weight_decay), T::from_constant(rule.momentum));
        let (rate, factor) = (T::from_constant(rule.learning_rate), T::from_constant(rule.gradient_factor));
        with_slice_mut(parameter, |p| with_slice_mut(momentum, |b| {
            let (p, b) = (<T as Element>::borrowed(p)?, <T as Element>::borrowed(b)?);
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
