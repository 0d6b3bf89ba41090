//! Stochastic depth (Huang et al. 2016): a residual branch is dropped for a whole sample with
//! probability `fraction`, and scaled by `1 / (1 - fraction)` for the others. The backward pass
//! draws the same numbers again. Nothing is saved.
//!
//! A fraction of 0 changes nothing, as evaluation needs.

use super::expect_filled;
use super::noise_key::{Noise, NoiseKey, expect_fraction};
use crate::convert_dtype::host_tensor;
use crate::cpu::{Float, View, buffer, to_tensor, wide, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

impl Tape<'_> {
    /// Zeroes a `fraction` of the samples of `x` [samples, ..]. `key` determines which.
    pub fn drop_path(&self, x: &Value, fraction: f64, key: &NoiseKey) -> Result<Value> {
        self.poll()?;
        expect_fraction("drop_path", fraction)?;
        expect_filled("drop_path", "x", x)?;
        let noise = Noise::new("drop_path", x, key)?;
        if fraction == 0.0 {
            return Ok(x.clone());
        }
        let kept = 1.0 / (1.0 - fraction);
        let factor = |stream: crate::Rng| {
            if stream.uniform(0) < fraction {
                0.0
            } else {
                kept
            }
        };
        let factors: Vec<f64> = noise.by_sample().map(factor).collect();
        let fused = self.fuses(x.tensor());
        let y = by_sample(x.tensor(), &factors, fused)?;
        self.unary(x, y, &[], move |dy| by_sample(&dy, &factors, fused))
    }
}

/// Multiplies each sample by its factor.
fn by_sample(x: &Tensor, factors: &[f64], fused: bool) -> Result<Tensor> {
    let x = contiguous(x)?;
    if !fused {
        let mut shape = vec![1; x.rank()];
        shape[0] = factors.len();
        let factors = host_tensor(factors.to_vec(), &shape, x.dtype(), x.device())?;
        return Ok(x.broadcast_mul(&factors)?);
    }
    let each = x.elem_count() / factors.len();
    with_float!("drop_path", x, T => {
        let xs = View::<T>::new("drop_path", &x)?;
        let mut y = buffer::<T>(xs.len());
        let rows = y.par_chunks_mut(each).zip(xs.par_chunks(each));
        rows.zip(factors).for_each(|((y, x), &factor)| {
            let factor = T::from_constant(factor);
            wide(#[inline(always)] || y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * factor));
        });
        to_tensor(y, x.dims())
    })
}
