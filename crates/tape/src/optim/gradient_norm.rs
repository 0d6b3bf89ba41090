//! Health of gradients: the global norm in one pass, and the counts of NaN and infinite values if
//! the norm shows that there are any. A clean step reads each gradient once and reads back one sum
//! per parameter.

use super::{CHUNK, Element};
use crate::cpu::{View, wide, with_float};
use crate::error::Result;
use crate::fault_injection;
use crate::inplace::to_f64;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use candle_core::{DType, Tensor};
use rayon::prelude::*;

/// The health of the gradients of one step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Health {
    /// Global norm. Not finite if any value is not.
    pub norm: f64,
    /// Gradients with values that are not finite, in order; empty on a clean step.
    pub non_finite: Vec<NonFinite>,
}

/// The counts of one gradient with values that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonFinite {
    /// Position of the parameter.
    pub index: usize,
    /// Number of NaN values.
    pub nan: u64,
    /// Number of infinite values.
    pub infinite: u64,
}

/// Checks the gradients of a step, given in the order of the parameters.
pub fn health(gradients: &[Tensor]) -> Result<Health> {
    let squares = square_sums(gradients)?;
    let mut non_finite = Vec::new();
    for (index, gradient) in gradients.iter().enumerate() {
        // The square may overflow although the value is finite, so the values are counted.
        if !squares[index].is_finite() {
            let (nan, infinite) = count(&to_f64(gradient)?);
            if nan + infinite > 0 {
                non_finite.push(NonFinite {
                    index,
                    nan,
                    infinite,
                });
            }
        }
    }
    Ok(Health {
        norm: squares.iter().sum::<f64>().sqrt(),
        non_finite,
    })
}

/// Global norm of many gradients. Not finite if any value is not.
pub fn global_norm(gradients: &[Tensor]) -> Result<f64> {
    Ok(square_sums(gradients)?.iter().sum::<f64>().sqrt())
}

fn count(values: &[f64]) -> (u64, u64) {
    let of = |is: fn(f64) -> bool| values.iter().filter(|v| is(**v)).count() as u64;
    (of(f64::is_nan), of(f64::is_infinite))
}

/// The sum of squares of each gradient.
fn square_sums(gradients: &[Tensor]) -> Result<Vec<f64>> {
    let single = |g: &Tensor| g.dtype() == DType::F32 && g.is_contiguous();
    if gradients
        .iter()
        .all(|g| single(g) && crate::kernels::run_on(KernelGroup::GradientNorm, g))
    {
        return crate::kernels::multi_tensor::square_sums(gradients);
    }
    if gradients.iter().all(crate::cpu::is_fused) {
        let sums = gradients.iter().map(square_sum).collect::<Result<_>>()?;
        return fault_injection::read_back(sums);
    }
    let sums = gradients
        .iter()
        .map(|g| g.to_dtype(DType::F32)?.sqr()?.sum_all())
        .collect::<candle_core::Result<Vec<_>>>()?;
    // One GPU sync for all of them, once per step.
    to_f64(&Tensor::stack(&sums, 0)?)
}

/// The shape determines the chunks, which are added in order.
fn square_sum(gradient: &Tensor) -> Result<f64> {
    let gradient = contiguous(gradient)?;
    with_float!("gradient norm", gradient, T => {
        let g = View::<T>::new("gradient norm", &gradient)?;
        let partial: Vec<f64> = g.par_chunks(CHUNK).map(|g| wide(#[inline(always)] || lanes(g))).collect();
        Ok(partial.into_iter().sum())
    })
}

/// Eight sums in parallel, in double precision: squares of f32 cannot overflow.
#[inline(always)]
fn lanes<T: Element>(values: &[T]) -> f64 {
    let mut lanes = [0.0; 8];
    let chunks = values.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, v)| {
            let v = v.as_f64();
            *lane += v * v;
        });
    }
    let rest = rest.iter().map(|v| v.as_f64() * v.as_f64());
    lanes.into_iter().chain(rest).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn gradient(values: Vec<f32>) -> Tensor {
        let count = values.len();
        Tensor::from_vec(values, count, &Device::Cpu).expect("a vector")
    }

    #[test]
    fn the_norm_is_the_root_of_all_squares() {
        let gradients = [gradient(vec![3.0; 9]), gradient(vec![0.0, -4.0])];
        let health = health(&gradients).expect("vectors");
        assert_eq!((health.norm, health.non_finite), (97f64.sqrt(), vec![]));
    }

    #[test]
    fn nan_and_infinite_values_are_counted_per_gradient() {
        let mut torn = vec![1.0; 70_000];
        (torn[3], torn[69_000], torn[65_536]) = (f32::NAN, f32::NAN, f32::INFINITY);
        let gradients = [
            gradient(vec![f32::MAX; 40]),
            gradient(torn),
            gradient(vec![0.0]),
            gradient(vec![f32::NEG_INFINITY]),
        ];
        let health = health(&gradients).expect("vectors");
        let found: Vec<_> = health
            .non_finite
            .iter()
            .map(|n| (n.index, n.nan, n.infinite))
            .collect();
        assert_eq!(found, [(1, 2, 1), (3, 0, 1)]);
        assert!(health.norm.is_nan());
    }
}
