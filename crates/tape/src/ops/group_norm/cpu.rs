//! Group norm on CPU slices: one task per sample, one pass per group.

use super::{Norm, Sizes, Slopes};
use crate::cpu::{Float, View, add_in_order, buffer, to_tensor, vectorized_rows, wide};
use crate::error::Result;
use crate::ops::activation::{Activation, gelu, gelu_slope};
use candle_core::Tensor;
use rayon::prelude::*;

const OP: &str = "group_norm";

pub(super) fn moments<T: Float>(x: &Tensor, sizes: Sizes) -> Result<Tensor> {
    let samples = x.dim(0)?;
    let xs = View::<T>::new(OP, x)?;
    let group = sizes.channels_a_group() * sizes.pixels;
    let mut moments = buffer::<T>(samples * sizes.groups * 2);
    moments
        .par_chunks_mut(2)
        .zip(xs.par_chunks(group.max(1)))
        .for_each(|(out, x)| {
            let (mean, r) = wide(
                #[inline(always)]
                || vectorized_rows::moments(x, sizes.epsilon),
            );
            out.copy_from_slice(&[mean, r]);
        });
    to_tensor(moments, &[samples, sizes.groups, 2])
}

pub(super) fn forward<T: Float>(norm: &Norm, x: &Tensor, moments: &Tensor) -> Result<Tensor> {
    let (xs, w, b) = (
        View::<T>::new(OP, x)?,
        View::<T>::new(OP, &norm.weight)?,
        View::<T>::new(OP, &norm.bias)?,
    );
    let moments = View::<T>::new(OP, moments)?;
    let sizes = norm.sizes;
    let pixels = sizes.pixels.max(1);
    let mut y = buffer::<T>(xs.len());
    y.par_chunks_mut(pixels)
        .zip(xs.par_chunks(pixels))
        .enumerate()
        .for_each(|(i, (y, x))| {
            let (sample, channel) = (i / sizes.channels, i % sizes.channels);
            let group = sample * sizes.groups + channel / sizes.channels_a_group();
            let (mean, r) = (moments[2 * group], moments[2 * group + 1]);
            let (scale, shift) = (r * w[channel], b[channel] - mean * (r * w[channel]));
            wide(
                #[inline(always)]
                || match norm.activation {
                    Activation::None => each(y, x, |x| x * scale + shift),
                    Activation::Relu => each(y, x, |x| relu(x * scale + shift)),
                    Activation::Gelu => each(y, x, |x| gelu(x * scale + shift)),
                },
            );
        });
    to_tensor(y, x.dims())
}

#[inline(always)]
fn each<T: Float>(y: &mut [T], x: &[T], f: impl Fn(T) -> T) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x));
}

#[inline(always)]
fn relu<T: Float>(z: T) -> T {
    // Written so that NaN passes: any comparison with it is false.
    if z < T::zero() { T::zero() } else { z }
}

pub(super) fn backward<T: Float>(
    norm: &Norm,
    x: &Tensor,
    moments: &Tensor,
    dy: &Tensor,
) -> Result<Slopes> {
    let (xs, dys) = (View::<T>::new(OP, x)?, View::<T>::new(OP, dy)?);
    let (w, b) = (
        View::<T>::new(OP, &norm.weight)?,
        View::<T>::new(OP, &norm.bias)?,
    );
    let moments = View::<T>::new(OP, moments)?;
    let sizes = norm.sizes;
    let (channels, per_group) = (sizes.channels, sizes.channels_a_group());
    let (sample, group) = (sizes.sample().max(1), per_group * sizes.pixels);
    let mut dx = buffer::<T>(xs.len());
    // One partial sum per sample, added in sample order: the result does not depend on the threads.
    let partial: Vec<Vec<T>> = dx
        .par_chunks_mut(sample)
        .zip(xs.par_chunks(sample))
        .zip(dys.par_chunks(sample))
        .enumerate()
        .map(|(n, ((dx, x), dy))| {
            let mut sums = vec![T::zero(); 2 * channels];
            let (dw, db) = sums.split_at_mut(channels);
            for g in 0..sizes.groups {
                let (span, channel) = (g * group..(g + 1) * group, g * per_group);
                let of_group = Group {
                    mean: moments[2 * (n * sizes.groups + g)],
                    r: moments[2 * (n * sizes.groups + g) + 1],
                    weight: &w[channel..channel + per_group],
                    bias: &b[channel..channel + per_group],
                    pixels: sizes.pixels,
                    activation: norm.activation,
                };
                let (dw, db) = (
                    &mut dw[channel..channel + per_group],
                    &mut db[channel..channel + per_group],
                );
                let (dx, x, dy) = (&mut dx[span.clone()], &x[span.clone()], &dy[span]);
                wide(
                    #[inline(always)]
                    || of_group.backward(dx, x, dy, dw, db),
                );
            }
            sums
        })
        .collect();
    let mut dw = add_in_order(partial, 2 * channels);
    let db = dw.split_off(channels);
    Ok((
        to_tensor(dx, x.dims())?,
        to_tensor(dw, &[channels])?,
        to_tensor(db, &[channels])?,
    ))
}

/// One group of one sample.
struct Group<'a, T> {
    mean: T,
    r: T,
    weight: &'a [T],
    bias: &'a [T],
    pixels: usize,
    activation: Activation,
}

impl<T: Float> Group<'_, T> {
    #[inline(always)]
    fn backward(&self, dx: &mut [T], x: &[T], dy: &[T], dw: &mut [T], db: &mut [T]) {
        let (mean, r) = (self.mean, self.r);
        let (mut mean_g, mut mean_gn) = (T::zero(), T::zero());
        for c in 0..self.weight.len() {
            let pixel = c * self.pixels..(c + 1) * self.pixels;
            let (x, dz) = (&x[pixel.clone()], &mut dx[pixel.clone()]);
            self.through(c, dz, x, &dy[pixel]);
            db[c] = vectorized_rows::sum(dz, |d| d);
            dw[c] = vectorized_rows::sum2(dz, x, |d, x| d * (x - mean)) * r;
            mean_g += db[c] * self.weight[c];
            mean_gn += dw[c] * self.weight[c];
        }
        let count = T::from_constant(x.len() as f64);
        let (mean_g, slope) = (mean_g / count, r * mean_gn / count);
        for c in 0..self.weight.len() {
            let (pixel, w) = (c * self.pixels..(c + 1) * self.pixels, self.weight[c]);
            dx[pixel.clone()]
                .iter_mut()
                .zip(&x[pixel])
                .for_each(|(d, &x)| *d = r * (*d * w - mean_g - (x - mean) * slope));
        }
    }

    /// `dz = dy f'(z)` of one channel.
    #[inline(always)]
    fn through(&self, channel: usize, dz: &mut [T], x: &[T], dy: &[T]) {
        let scale = self.r * self.weight[channel];
        let shift = self.bias[channel] - self.mean * scale;
        let inputs = dz.iter_mut().zip(x.iter().zip(dy));
        match self.activation {
            Activation::None => dz.copy_from_slice(dy),
            Activation::Relu => inputs.for_each(|(dz, (&x, &dy))| {
                *dz = if x * scale + shift <= T::zero() {
                    T::zero()
                } else {
                    dy
                }
            }),
            Activation::Gelu => {
                inputs.for_each(|(dz, (&x, &dy))| *dz = dy * gelu_slope(x * scale + shift));
            }
        }
    }
}
