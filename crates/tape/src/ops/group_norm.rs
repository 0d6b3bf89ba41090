//! Group norm (Wu and He 2018): the channels of each sample are normalised in groups, then scaled and shifted by channel.
//! No sample ever sees another, so a split cannot change it.
//!
//! Backward as layer norm's, over the group. Saved: `x`.

use super::{axes, expect_shape};
use crate::cpu::{Float, View, add_in_order, buffer, lanes, tensor_of, wide, with_float};
use crate::error::{Result, TapeError};
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

/// Sizes of one call: samples, channels, pixels a channel, groups.
#[derive(Clone, Copy)]
struct Sizes {
    channels: usize,
    pixels: usize,
    groups: usize,
}

impl Sizes {
    fn channels_a_group(self) -> usize {
        self.channels / self.groups
    }

    fn sample(self) -> usize {
        self.channels * self.pixels
    }
}

impl Tape<'_> {
    /// Normalises `x` [samples, channels, height, width] in `groups`; `weight` and `bias` are [channels].
    pub fn group_norm(
        &self,
        x: &Value,
        groups: usize,
        weight: &Value,
        bias: &Value,
        epsilon: f64,
    ) -> Result<Value> {
        self.poll()?;
        let [_, channels, height, width] = axes("group_norm", "x", x)?;
        if groups == 0 || channels % groups != 0 {
            return Err(TapeError::Shape {
                op: "group_norm",
                what: "x".to_owned(),
                expected: format!("a multiple of {groups} channels"),
                found: x.tensor().shape().clone(),
            });
        }
        expect_shape("group_norm", "weight", weight, &[channels])?;
        expect_shape("group_norm", "bias", bias, &[channels])?;
        let sizes = Sizes {
            channels,
            pixels: height * width,
            groups,
        };
        let fused = self.fuses(x.tensor());
        let x_in = x.tensor().contiguous()?;
        let y = forward(&x_in, sizes, weight.tensor(), bias.tensor(), epsilon, fused)?;
        if !self.records(&[x, weight, bias]) {
            return Ok(Value::constant(y));
        }
        let (x_id, w_id, b_id) = (x.id(), weight.id(), bias.id());
        let w = weight.tensor().clone();
        Ok(self.push(y, &[&x_in.clone()], move |dy, sink| {
            let (dx, dw, db) = backward(&x_in, sizes, &w, &dy.contiguous()?, epsilon, fused)?;
            sink.give(x_id, dx)?;
            sink.give(w_id, dw)?;
            sink.give(b_id, db)
        }))
    }
}

fn forward(
    x: &Tensor,
    sizes: Sizes,
    weight: &Tensor,
    bias: &Tensor,
    epsilon: f64,
    fused: bool,
) -> Result<Tensor> {
    if !fused {
        let (n, _) = normalise(x, sizes, epsilon)?;
        let shape = (1, sizes.channels, 1, 1);
        return Ok(n
            .broadcast_mul(&weight.reshape(shape)?)?
            .broadcast_add(&bias.reshape(shape)?)?);
    }
    with_float!("group_norm", x, T => {
        let (xs, w, b) = (View::<T>::of("group_norm", x)?, View::<T>::of("group_norm", weight)?, View::<T>::of("group_norm", bias)?);
        let mut y = buffer::<T>(xs.len());
        let (per_group, pixels) = (sizes.channels_a_group(), sizes.pixels);
        y.par_chunks_mut(sizes.sample()).zip(xs.par_chunks(sizes.sample())).for_each(|(y, x)| {
            let group = per_group * pixels;
            wide(|| {
                for (g, (y, x)) in y.chunks_exact_mut(group).zip(x.chunks_exact(group)).enumerate() {
                    let (mean, r) = lanes::moments(x, epsilon);
                    for (c, (y, x)) in y.chunks_exact_mut(pixels).zip(x.chunks_exact(pixels)).enumerate() {
                        let channel = g * per_group + c;
                        let (scale, shift) = (r * w[channel], b[channel] - mean * r * w[channel]);
                        y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * scale + shift);
                    }
                }
            });
        });
        tensor_of(y, x.dims())
    })
}

/// The composed form: normalised values in the shape of `x`, and `r` [samples, groups, 1].
fn normalise(x: &Tensor, sizes: Sizes, epsilon: f64) -> Result<(Tensor, Tensor)> {
    let samples = x.dim(0)?;
    let grouped = x.reshape((
        samples,
        sizes.groups,
        sizes.channels_a_group() * sizes.pixels,
    ))?;
    let centred = grouped.broadcast_sub(&grouped.mean_keepdim(2)?)?;
    let r = (centred.sqr()?.mean_keepdim(2)? + epsilon)?
        .sqrt()?
        .recip()?;
    Ok((centred.broadcast_mul(&r)?.reshape(x.shape())?, r))
}

fn backward(
    x: &Tensor,
    sizes: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    epsilon: f64,
    fused: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    if fused {
        return backward_fused(x, sizes, weight, dy, epsilon);
    }
    let samples = x.dim(0)?;
    let (n, r) = normalise(x, sizes, epsilon)?;
    let by_channel = |t: &Tensor| -> Result<Tensor> {
        Ok(t.reshape((samples, sizes.channels, sizes.pixels))?
            .sum(2)?
            .sum(0)?)
    };
    let (dw, db) = (by_channel(&(dy * &n)?)?, by_channel(dy)?);
    let grouped = (
        samples,
        sizes.groups,
        sizes.channels_a_group() * sizes.pixels,
    );
    let g = dy
        .broadcast_mul(&weight.reshape((1, sizes.channels, 1, 1))?)?
        .reshape(grouped)?;
    let n = n.reshape(grouped)?;
    let inner =
        (g.broadcast_sub(&g.mean_keepdim(2)?)? - n.broadcast_mul(&(&g * &n)?.mean_keepdim(2)?)?)?;
    Ok((inner.broadcast_mul(&r)?.reshape(x.shape())?, dw, db))
}

fn backward_fused(
    x: &Tensor,
    sizes: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    epsilon: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    with_float!("group_norm", x, T => {
        let (xs, w, dys) = (View::<T>::of("group_norm", x)?, View::<T>::of("group_norm", weight)?, View::<T>::of("group_norm", dy)?);
        let mut dx = buffer::<T>(xs.len());
        let (per_group, pixels, channels) = (sizes.channels_a_group(), sizes.pixels, sizes.channels);
        let group = per_group * pixels;
        let count = T::of(group as f64);
        let sample = sizes.sample();
        // One partial sum a sample, added in sample order: the same whatever the threads.
        let partial: Vec<Vec<T>> = dx.par_chunks_mut(sample).zip(xs.par_chunks(sample)).zip(dys.par_chunks(sample)).map(|((dx, x), dy)| {
            let mut sums = vec![T::default(); 2 * channels];
            wide(|| {
                for g in 0..sizes.groups {
                    let span = g * group..(g + 1) * group;
                    let (x, dy, dx) = (&x[span.clone()], &dy[span.clone()], &mut dx[span]);
                    let (mean, r) = lanes::moments(x, epsilon);
                    let (mut mean_g, mut mean_gn) = (T::default(), T::default());
                    for c in 0..per_group {
                        let (pixel, channel) = (c * pixels..(c + 1) * pixels, g * per_group + c);
                        let db = lanes::sum(&dy[pixel.clone()], |d| d);
                        let dw = lanes::sum2(&dy[pixel.clone()], &x[pixel], |d, x| d * (x - mean)) * r;
                        sums[channel] = dw;
                        sums[channels + channel] = db;
                        mean_g += db * w[channel];
                        mean_gn += dw * w[channel];
                    }
                    let (mean_g, mean_gn) = (mean_g / count, mean_gn / count);
                    for c in 0..per_group {
                        let (pixel, weight) = (c * pixels..(c + 1) * pixels, w[g * per_group + c]);
                        let slope = r * mean_gn;
                        dx[pixel.clone()].iter_mut().zip(x[pixel.clone()].iter().zip(&dy[pixel])).for_each(|(dx, (&x, &dy))| {
                            *dx = r * (dy * weight - mean_g - (x - mean) * slope);
                        });
                    }
                }
            });
            sums
        }).collect();
        let mut dw = add_in_order(partial, 2 * channels);
        let db = dw.split_off(channels);
        Ok((tensor_of(dx, x.dims())?, tensor_of(dw, &[channels])?, tensor_of(db, &[channels])?))
    })
}
