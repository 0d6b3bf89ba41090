//! Dropout (Srivastava et al. 2014): each number becomes zero with probability `fraction`, the others grow by
//! `1 / (1 - fraction)`. Backward draws the same numbers again. Nothing is saved;
//! whoever needs the output keeps the input and draws again.
//!
//! A fraction of 0 does nothing: what evaluation asks for.

use super::noise::{Noise, NoiseKey, expect_fraction};
use super::{Form, expect_filled};
use crate::cpu::{Float, View, buffer, row_chunks, tensor_of, wide, with_float};
use crate::error::Result;
use crate::kept::Again;
use crate::kernels::elements;
use crate::parameters::host_tensor;
use crate::stream::Stream;
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};
use rayon::prelude::*;
use std::rc::Rc;

impl Tape<'_> {
    /// Zeroes a `fraction` of the numbers of `x` [samples, ..], which ones is said by `key` and their coordinates.
    pub fn dropout(&self, x: &Value, fraction: f64, key: &NoiseKey) -> Result<Value> {
        self.poll()?;
        expect_fraction("dropout", fraction)?;
        expect_filled("dropout", "x", x)?;
        let noise = Noise::new("dropout", x, key)?;
        if fraction == 0.0 {
            return Ok(x.clone());
        }
        let form = self.form(x.tensor());
        let y = drop(x.tensor(), fraction, &noise, form)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let (id, noise) = (x.id(), Rc::new(noise));
        let drawn = noise.clone();
        let again = Again::new(x.keep(), &[], move |x| drop(x, fraction, &drawn, form));
        let y = self.push(y, &[], move |dy, sink| {
            sink.give(id, drop(&dy, fraction, &noise, form)?)
        });
        Ok(y.computed_again(again))
    }
}

fn drop(x: &Tensor, fraction: f64, noise: &Noise, form: Form) -> Result<Tensor> {
    let (x, streams) = (x.contiguous()?, noise.by_row(x.dims()));
    let width = if x.rank() > 1 { x.dim(D::Minus1)? } else { 1 };
    let kept = 1.0 / (1.0 - fraction);
    if form == Form::Device {
        return elements::dropout(&x, &streams, fraction, kept);
    }
    if form == Form::Composed {
        let one = |stream: &Stream, i: u64| {
            if stream.uniform(i) < fraction {
                0.0
            } else {
                kept
            }
        };
        let mask = streams
            .iter()
            .flat_map(|stream| (0..width as u64).map(move |i| one(stream, i)));
        let mask = host_tensor(mask.collect(), x.dims(), x.dtype(), x.device())?;
        return Ok((x * mask)?);
    }
    with_float!("dropout", x, T => {
        let xs = View::<T>::of("dropout", &x)?;
        tensor_of(masked(&xs, &streams, width, fraction, T::of(kept)), x.dims())
    })
}

fn masked<T: Float>(x: &[T], streams: &[Stream], width: usize, fraction: f64, kept: T) -> Vec<T> {
    let (mut y, rows) = (buffer::<T>(x.len()), row_chunks(width));
    y.par_chunks_mut(rows * width)
        .zip(x.par_chunks(rows * width))
        .zip(streams.par_chunks(rows))
        .for_each(|((y, x), streams)| {
            let rows = y.chunks_exact_mut(width).zip(x.chunks_exact(width));
            for ((y, x), stream) in rows.zip(streams) {
                wide(
                    #[inline(always)]
                    || {
                        for (i, (y, &x)) in y.iter_mut().zip(x).enumerate() {
                            let dropped = stream.uniform(i as u64) < fraction;
                            *y = if dropped { T::zero() } else { x * kept };
                        }
                    },
                );
            }
        });
    y
}
