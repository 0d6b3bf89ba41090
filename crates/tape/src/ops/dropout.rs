//! Dropout (Srivastava et al. 2014): each value becomes zero with probability `fraction`; the
//! others are scaled by `1 / (1 - fraction)`. The backward pass draws the same numbers again.
//! Nothing is saved; operations that need the output save the input and draw again.
//!
//! A fraction of 0 changes nothing, as evaluation needs.

use super::noise_key::{Noise, NoiseKey, Positions, expect_fraction};
use super::{Form, expect_filled};
use crate::convert_dtype::host_tensor;
use crate::cpu::{Float, View, buffer, row_chunks, to_tensor, wide, with_float};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::kernels::elementwise;
use crate::rng::{Rng, share_of_u32};
use crate::saved_input::Recompute;
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};
use rayon::prelude::*;
use std::rc::Rc;

impl Tape<'_> {
    /// Zeroes a `fraction` of the values of `x` [samples, ..]. `key` and their coordinates
    /// determine which.
    pub fn dropout(&self, x: &Value, fraction: f64, key: &NoiseKey) -> Result<Value> {
        self.poll()?;
        expect_fraction("dropout", fraction)?;
        expect_filled("dropout", "x", x)?;
        let noise = Noise::new("dropout", x, key)?;
        if fraction == 0.0 {
            return Ok(x.clone());
        }
        let form = self.form(KernelGroup::Dropout, x.tensor());
        let y = drop(x.tensor(), fraction, &noise, form)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let (id, noise) = (x.id(), Rc::new(noise));
        let drawn = noise.clone();
        let again = Recompute::new(x.saved_input(), &[], move |x| {
            drop(x, fraction, &drawn, form)
        });
        let y = self.push(y, &[], move |dy, sink| {
            sink.add_owned(id, drop(&dy, fraction, &noise, form)?)
        });
        Ok(y.with_recompute(again))
    }

    /// [`Tape::dropout`] with the noise of this tape. `site` is the name of the operation in the
    /// model. On a tape without noise, as in evaluation, `x` is returned as it is.
    pub fn sample_dropout(&self, x: &Value, fraction: f64, site: &str) -> Result<Value> {
        let Some(noise) = self.sample_noise().filter(|_| fraction > 0.0) else {
            return Ok(x.clone());
        };
        let key = NoiseKey {
            seed: noise.seed,
            step: noise.step,
            site,
            samples: &noise.samples,
            positions: Positions::Counted,
        };
        self.dropout(x, fraction, &key)
    }

    /// Whether [`Tape::sample_dropout`] with this fraction changes values.
    pub fn drops(&self, fraction: f64) -> bool {
        fraction > 0.0 && self.sample_noise().is_some()
    }
}

fn drop(x: &Tensor, fraction: f64, noise: &Noise, form: Form) -> Result<Tensor> {
    let (x, streams) = (contiguous(x)?, noise.by_row(x.dims()));
    let width = if x.rank() > 1 { x.dim(D::Minus1)? } else { 1 };
    let (kept, limit) = (1.0 / (1.0 - fraction), share_of_u32(fraction));
    if form == Form::Device {
        return elementwise::dropout(&x, &streams, fraction, kept);
    }
    if form == Form::Composed {
        let one = |stream: &Rng, i: usize| {
            if is_dropped(stream, i, limit) {
                0.0
            } else {
                kept
            }
        };
        let mask = streams
            .iter()
            .flat_map(|stream| (0..width).map(move |i| one(stream, i)));
        let mask = host_tensor(mask.collect(), x.dims(), x.dtype(), x.device())?;
        return Ok((x * mask)?);
    }
    with_float!("dropout", x, T => {
        let xs = View::<T>::new("dropout", &x)?;
        to_tensor(masked(&xs, &streams, width, limit, T::from_constant(kept)), x.dims())
    })
}

/// Two neighbors in a row share one number of its stream.
fn is_dropped(stream: &Rng, place: usize, limit: u32) -> bool {
    stream.halves(place as u64 / 2)[place % 2] < limit
}

fn masked<T: Float>(x: &[T], streams: &[Rng], width: usize, limit: u32, kept: T) -> Vec<T> {
    let (mut y, rows) = (buffer::<T>(x.len()), row_chunks(width));
    let one = |x: T, half: u32| if half < limit { T::zero() } else { x * kept };
    y.par_chunks_mut(rows * width)
        .zip(x.par_chunks(rows * width))
        .zip(streams.par_chunks(rows))
        .for_each(|((y, x), streams)| {
            let rows = y.chunks_exact_mut(width).zip(x.chunks_exact(width));
            for ((y, x), stream) in rows.zip(streams) {
                wide(
                    #[inline(always)]
                    || {
                        let (pairs, last) = y.as_chunks_mut::<2>();
                        let (xs, last_x) = x.as_chunks::<2>();
                        for (i, (y, x)) in pairs.iter_mut().zip(xs).enumerate() {
                            let halves = stream.halves(i as u64);
                            *y = [one(x[0], halves[0]), one(x[1], halves[1])];
                        }
                        if let ([y], [x]) = (last, last_x) {
                            *y = one(*x, stream.halves(width as u64 / 2)[0]);
                        }
                    },
                );
            }
        });
    y
}
