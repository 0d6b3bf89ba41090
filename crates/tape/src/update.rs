//! Optimizer passes: one walk over a parameter, its moments and its gradient, in place on the CPU; elsewhere new tensors
//! take the old ones' place.

use crate::cpu::{Float, View, wide, with_float};
use crate::error::Result;
use crate::inplace::{SliceMut, to_f64, with_slice_mut};
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

/// Elements a task takes.
const CHUNK: usize = 64 * 1024;

/// One AdamW step on a parameter with its first and second moment.
pub fn adamw(
    parameter: &mut Tensor,
    first: &mut Tensor,
    second: &mut Tensor,
    gradient: &Tensor,
    rule: AdamW,
) -> Result<()> {
    let correct1 = 1.0 - rule.beta1.powf(rule.step as f64);
    let correct2 = 1.0 - rule.beta2.powf(rule.step as f64);
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
            let (p, m, v) = (T::lent(p)?, T::lent(m)?, T::lent(v)?);
            p.par_chunks_mut(CHUNK).zip(m.par_chunks_mut(CHUNK)).zip(v.par_chunks_mut(CHUNK)).zip(g.par_chunks(CHUNK)).for_each(|(((p, m), v), g)| {
                wide(|| for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
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
            let (p, b) = (T::lent(p)?, T::lent(b)?);
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

/// Global norm of many gradients, in f64. NaN or infinite when any value is.
pub fn global_norm(gradients: &[Tensor]) -> Result<f64> {
    let mut sum = 0.0;
    for gradient in gradients {
        sum += square_sum(gradient)?;
    }
    Ok(sum.sqrt())
}

fn square_sum(gradient: &Tensor) -> Result<f64> {
    if !crate::cpu::is_fused(gradient) {
        // One read-back a parameter: a GPU sync each, once a step.
        return Ok(to_f64(&gradient.sqr()?.sum_all()?)?[0]);
    }
    let gradient = gradient.contiguous()?;
    with_float!("global_norm", gradient, T => {
        let g = View::<T>::of("global_norm", &gradient)?;
        let partial: Vec<f64> = g.par_chunks(CHUNK).map(|g| g.iter().map(|&v| { let v = T::widen(v); v * v }).sum()).collect();
        Ok(partial.into_iter().sum())
    })
}

/// What a pass needs of an element type beside arithmetic.
trait Lent: Float {
    fn lent(slice: SliceMut<'_>) -> candle_core::Result<&mut [Self]>;
    fn widen(self) -> f64;
}

impl Lent for f32 {
    fn lent(slice: SliceMut<'_>) -> candle_core::Result<&mut [f32]> {
        match slice {
            SliceMut::F32(values) => Ok(values),
            SliceMut::F64(_) => candle_core::bail!("moments and parameter differ in element type"),
        }
    }

    fn widen(self) -> f64 {
        f64::from(self)
    }
}

impl Lent for f64 {
    fn lent(slice: SliceMut<'_>) -> candle_core::Result<&mut [f64]> {
        match slice {
            SliceMut::F64(values) => Ok(values),
            SliceMut::F32(_) => candle_core::bail!("moments and parameter differ in element type"),
        }
    }

    fn widen(self) -> f64 {
        self
    }
}
