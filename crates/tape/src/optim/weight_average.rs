//! Moving average of weights (Polyak and Juditsky 1992, in its exponential form): `a = decay a + (1
//! - decay) p`, one pass.

use super::{CHUNK, Element};
use crate::cpu::{Float, View, wide, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use crate::kernels::copies::contiguous;
use crate::kernels::{KernelGroup, multi_tensor, run_on};
use candle_core::{DType, Tensor};
use rayon::prelude::*;

/// Moves each average towards its parameter, in place: a few launches on a GPU, seven pairs per
/// launch. Returns false and changes nothing if there is no kernel for it.
pub fn average_together(pairs: &[(&Tensor, &Tensor)], decay: f64) -> Result<bool> {
    let fits = |t: &Tensor| {
        t.dtype() == DType::F32 && t.is_contiguous() && run_on(KernelGroup::WeightAverage, t)
    };
    let all = pairs.iter().all(|(average, parameter)| {
        fits(average) && fits(parameter) && average.elem_count() == parameter.elem_count()
    });
    if all {
        multi_tensor::average(pairs, decay)?;
    }
    Ok(all)
}

/// Moves the average towards the parameter, in place on the CPU.
pub fn average(average: &mut Tensor, parameter: &Tensor, decay: f64) -> Result<()> {
    if !crate::cpu::is_fused(average) {
        *average = ((&*average * decay)? + (parameter * (1.0 - decay))?)?;
        return Ok(());
    }
    let parameter = contiguous(parameter)?;
    with_float!("average", parameter, T => {
        let p = View::<T>::new("average", &parameter)?;
        let (keep, take) = (T::from_constant(decay), T::from_constant(1.0 - decay));
        with_slice_mut(average, |a| {
            let a = <T as Element>::borrowed(a)?;
            a.par_chunks_mut(CHUNK).zip(p.par_chunks(CHUNK)).for_each(|(a, p)| {
                wide(#[inline(always)] || a.iter_mut().zip(p).for_each(|(a, &p)| *a = keep * *a + take * p));
            });
            Ok(())
        })?;
        Ok(())
    })
}
