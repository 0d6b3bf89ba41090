//! One pass over the elements of a parameter, one state tensor and the gradient, for optimizers
//! without a kernel of their own.

use super::{CHUNK, Element};
use crate::cpu::{Float, View, wide, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use crate::kernels::copies::contiguous;
use candle_core::Tensor;
use rayon::prelude::*;

/// One element of the tensors that an optimizer step updates, in f64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepElement {
    /// Of the parameter.
    pub parameter: f64,
    /// Of the optimizer's state.
    pub state: f64,
}

/// Replaces every element of `parameter` and `state` by the result of `rule`, which also gets the
/// gradient. Works in place and allocates nothing. Returns false and changes nothing if the tensors
/// are not f32 or f64 on the CPU.
///
/// # Errors
/// The tensors differ in type, or `parameter` and `state` are not contiguous.
pub(super) fn update_elements(
    parameter: &Tensor,
    state: &Tensor,
    gradient: &Tensor,
    rule: impl Fn(StepElement, f64) -> StepElement + Sync,
) -> Result<bool> {
    if !crate::cpu::is_fused(parameter) {
        return Ok(false);
    }
    let gradient = contiguous(gradient)?;
    with_float!("update_elements", parameter, T => {
        let g = View::<T>::new("update_elements", &gradient)?;
        with_slice_mut(parameter, |p| with_slice_mut(state, |s| {
            let (p, s) = (<T as Element>::borrowed(p)?, <T as Element>::borrowed(s)?);
            p.par_chunks_mut(CHUNK).zip(s.par_chunks_mut(CHUNK)).zip(g.par_chunks(CHUNK)).for_each(|((p, s), g)| {
                wide(#[inline(always)] || for ((p, s), &g) in p.iter_mut().zip(s).zip(g) {
                    let old = StepElement { parameter: p.as_f64(), state: s.as_f64() };
                    let new = rule(old, g.as_f64());
                    (*p, *s) = (T::from_constant(new.parameter), T::from_constant(new.state));
                });
            });
            Ok(())
        }))?;
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    fn every_element_is_updated_with_its_state_and_gradient() {
        let count = 2 * CHUNK + 5;
        for dtype in [DType::F32, DType::F64] {
            let ramp = |first: f64| {
                let values: Vec<f64> = (0..count).map(|i| first + i as f64).collect();
                let tensor = Tensor::from_vec(values, count, &Device::Cpu);
                tensor.and_then(|t| t.to_dtype(dtype)).expect("a tensor")
            };
            let (parameter, state, gradient) = (ramp(0.0), ramp(1.0), ramp(2.0));
            let rule = |old: StepElement, gradient: f64| StepElement {
                parameter: old.parameter - old.state,
                state: old.state + gradient,
            };
            let done = update_elements(&parameter, &state, &gradient, rule);
            assert!(done.expect("they fit"), "{dtype:?}");
            let values = |tensor: &Tensor| crate::inplace::to_f64(tensor).expect("numbers");
            assert!(values(&parameter).iter().all(|&value| value == -1.0));
            let expected = (0..count).map(|i| 3.0 + 2.0 * i as f64);
            assert!(values(&state).into_iter().eq(expected), "{dtype:?}");
        }
    }

    #[test]
    fn other_types_are_left_to_the_caller() {
        let half = Tensor::ones(3, DType::BF16, &Device::Cpu).expect("a tensor");
        let untouched = update_elements(
            &half,
            &half.force_contiguous().expect("a copy"),
            &half,
            |old, _| old,
        );
        assert!(!untouched.expect("it is no error"));
    }
}
