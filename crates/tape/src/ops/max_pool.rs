//! Max pooling: the largest value at each position of a square window, [samples, channels, height,
//! width]. Outside the image counts as minus infinity; in a tie the first value gets the gradient.
//! Saved: one byte per output, the place of its value in the window.

use super::{Form, axes, misfit};
use crate::convert_dtype::widened;
use crate::cpu::{Float, View, buffer, skips_arithmetic, to_tensor, wide, with_float};
use crate::device_sync::{read, to_host};
use crate::error::{Result, TapeError};
use crate::inplace::to_f64;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::kernels::feature_maps;
use crate::kink_log::Kink;
use crate::optim::Element;
use crate::tape::{Tape, Value};
use candle_core::{Device, Tensor};
use rayon::prelude::*;

/// Size, stride and padding of a pooling window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolShape {
    /// Side of the window, at most 15.
    pub kernel: usize,
    /// Pixels between two positions.
    pub stride: usize,
    /// Border around the image, less than the kernel.
    pub padding: usize,
}

#[derive(Clone, Copy)]
struct Plane {
    height: usize,
    width: usize,
    out_height: usize,
    out_width: usize,
    shape: PoolShape,
}

impl Plane {
    /// The outputs of a row for which place `j` of the window lies inside the image.
    fn inside(&self, j: usize) -> std::ops::Range<usize> {
        let s = self.shape;
        let from = s.padding.saturating_sub(j).div_ceil(s.stride);
        let to = (self.width + s.padding).saturating_sub(j);
        let to = to.div_ceil(s.stride).min(self.out_width);
        from.min(to)..to
    }

    /// The largest value of each output of row `y`, and its place in the window, the first one in a
    /// tie. NaN counts as larger than any number. Places are compared as floats of the same width
    /// as the values, so that the loop is vectorized.
    #[inline(always)]
    fn row<T: Element>(
        &self,
        y: usize,
        image: &[T],
        best: &mut [T],
        places: &mut [u8],
        scratch: &mut [T],
    ) {
        let s = self.shape;
        let (numbers, beside) = scratch.split_at_mut(self.out_width);
        best.fill(T::neg_infinity());
        let rows = (0..s.kernel).filter_map(|i| {
            let row = (y * s.stride + i).checked_sub(s.padding)?;
            (row < self.height).then_some((i, row))
        });
        for (nth, (i, row)) in rows.enumerate() {
            let line = &image[row * self.width..][..self.width];
            if nth == 0 {
                // If nothing is larger than minus infinity, the first place wins.
                for j in (0..s.kernel).rev() {
                    numbers[self.inside(j)].fill(T::from_constant((i * s.kernel + j) as f64));
                }
            }
            for j in 0..s.kernel {
                let (outputs, number) =
                    (self.inside(j), T::from_constant((i * s.kernel + j) as f64));
                if outputs.is_empty() {
                    continue;
                }
                let values = line[outputs.start * s.stride + j - s.padding..].iter();
                let beside = &mut beside[..outputs.len()];
                let pairs = beside.iter_mut().zip(values.step_by(s.stride));
                pairs.for_each(|(to, &value)| *to = value);
                let outs = best[outputs.clone()].iter_mut().zip(&mut numbers[outputs]);
                for ((best, place), &value) in outs.zip(beside.iter()) {
                    let larger = value > *best || value.is_nan();
                    *best = if larger { value } else { *best };
                    *place = if larger { number } else { *place };
                }
            }
        }
        let numbers = places.iter_mut().zip(numbers.iter());
        numbers.for_each(|(place, &number)| *place = number.to_byte());
    }

    fn outputs(&self) -> usize {
        self.out_height * self.out_width
    }

    /// The pixel at place `place` of the window of output `at`.
    fn pixel(&self, at: usize, place: u8) -> usize {
        let (s, place) = (self.shape, usize::from(place));
        let row = at / self.out_width * s.stride + place / s.kernel - s.padding;
        row * self.width + at % self.out_width * s.stride + place % s.kernel - s.padding
    }

    /// [`Plane::pixel`], if the window has this place and it lies inside the image.
    fn pixel_inside(&self, at: usize, place: u8) -> Option<usize> {
        let (s, place) = (self.shape, usize::from(place));
        let row = (at / self.out_width * s.stride + place / s.kernel).checked_sub(s.padding)?;
        let column = (at % self.out_width * s.stride + place % s.kernel).checked_sub(s.padding)?;
        let inside = place < s.kernel.pow(2) && row < self.height && column < self.width;
        inside.then_some(row * self.width + column)
    }
}

impl Tape<'_> {
    /// The largest value of each window.
    pub fn max_pool(&self, x: &Value, shape: PoolShape) -> Result<Value> {
        self.poll()?;
        let [samples, channels, height, width] = axes("max_pool", "x", x)?;
        let covers = |size: usize| size + 2 * shape.padding >= shape.kernel;
        if shape.stride == 0
            || shape.kernel > 15
            || shape.padding >= shape.kernel
            || !covers(height)
            || !covers(width)
        {
            let expected = format!("an image that is large enough for {shape:?}");
            return Err(misfit("max_pool", "x", expected, x));
        }
        let out = |size: usize| (size + 2 * shape.padding - shape.kernel) / shape.stride + 1;
        let plane = Plane {
            height,
            width,
            out_height: out(height),
            out_width: out(width),
            shape,
        };
        let dims = [samples, channels, plane.out_height, plane.out_width];
        let input = contiguous(x.tensor())?;
        if self.form(KernelGroup::MaxPool, &input) == Form::Device && !self.follows_kinks() {
            return self.max_pool_by_kernels(x, &input, plane, &dims);
        }
        // Without a kernel the places are found on the host for every device: candle's own gradient
        // is wrong.
        let host = widened(&to_host(&input)?)?;
        let (y, places) = with_float!("max_pool", host, T => forward::<T>(plane, &host, &dims))?;
        let (y, places) = match self.recorded_ways(Kink::MaxPool, places.len())? {
            Some(taken) => (
                self.pool_with_kinks(plane, &host, &y, &places, &taken)?,
                taken,
            ),
            None => (y, places),
        };
        self.record_ways(Kink::MaxPool, places.len(), || Ok(places.clone()))?;
        let y = y.to_dtype(input.dtype())?.to_device(input.device())?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let (id, shape) = (x.id(), x.tensor().shape().clone());
        let kept = Tensor::from_vec(places, &dims, &Device::Cpu)?;
        Ok(self.push(y, &[&kept.clone()], move |dy, sink| {
            let (device, dtype) = (dy.device().clone(), dy.dtype());
            let (dy, places) = (widened(&to_host(&contiguous(&dy)?)?)?, read::<u8>(&kept)?);
            let dx =
                with_float!("max_pool", dy, T => backward::<T>(plane, &dy, &places, shape.dims()))?;
            sink.add_owned(id, dx.to_dtype(dtype)?.to_device(&device)?)
        }))
    }
}

impl Plane {
    fn pool(&self) -> feature_maps::Pool {
        feature_maps::Pool {
            input: (self.height, self.width),
            output: (self.out_height, self.out_width),
            kernel: self.shape.kernel,
            stride: self.shape.stride,
            padding: self.shape.padding,
        }
    }
}

impl Tape<'_> {
    /// The values at the places that the followed run took; `largest` are the values at this run's
    /// own places.
    fn pool_with_kinks(
        &self,
        plane: Plane,
        x: &Tensor,
        largest: &Tensor,
        own: &[u8],
        taken: &[u8],
    ) -> Result<Tensor> {
        let (xs, largest_values) = (to_f64(x)?, to_f64(largest)?);
        let (pixels, outputs) = (plane.height * plane.width, plane.outputs());
        let value = |(i, &place): (usize, &u8)| {
            let outside = || TapeError::Index {
                op: "max_pool",
                place: i,
                index: place.into(),
                size: plane.shape.kernel.pow(2),
            };
            let pixel = plane.pixel_inside(i % outputs, place);
            Ok(xs[i / outputs * pixels + pixel.ok_or_else(outside)?])
        };
        let y = taken.iter().enumerate().map(value);
        let y = y.collect::<Result<Vec<f64>>>()?;
        let others = (0..taken.len()).filter(|&i| taken[i] != own[i]);
        self.count_divergence(taken.len(), &xs, others.map(|i| largest_values[i] - y[i]));
        let y = Tensor::from_vec(y, largest.shape(), &Device::Cpu)?;
        Ok(y.to_dtype(x.dtype())?)
    }

    fn max_pool_by_kernels(
        &self,
        x: &Value,
        input: &Tensor,
        plane: Plane,
        dims: &[usize],
    ) -> Result<Value> {
        let (y, places) = feature_maps::max_pool(input, dims, plane.pool())?;
        self.record_ways(Kink::MaxPool, places.elem_count(), || read(&places))?;
        let shape = x.tensor().shape().clone();
        self.unary(x, y, &[&places.clone()], move |dy| {
            let dy = contiguous(&dy)?;
            feature_maps::max_pool_backward(&dy, &places, shape.dims(), plane.pool())
        })
    }
}

fn forward<T: Element>(plane: Plane, x: &Tensor, dims: &[usize]) -> Result<(Tensor, Vec<u8>)> {
    let xs = View::<T>::new("max_pool", x)?;
    let mut y = buffer::<T>(dims.iter().product());
    let mut places = buffer::<u8>(y.len());
    let planes = xs.par_chunks(plane.height * plane.width);
    y.par_chunks_mut(plane.outputs())
        .zip(places.par_chunks_mut(plane.outputs()))
        .zip(planes)
        .for_each(|((y, places), x)| {
            let mut scratch = vec![T::zero(); 2 * plane.out_width];
            let rows = y.chunks_exact_mut(plane.out_width);
            let rows = rows.zip(places.chunks_exact_mut(plane.out_width));
            for (at, (y, places)) in rows.enumerate() {
                wide(
                    #[inline(always)]
                    || plane.row(at, x, y, places, &mut scratch),
                );
            }
        });
    Ok((to_tensor(y, dims)?, places))
}

fn backward<T: Float>(plane: Plane, dy: &Tensor, places: &[u8], dims: &[usize]) -> Result<Tensor> {
    let dys = View::<T>::new("max_pool", dy)?;
    let mut dx = buffer::<T>(dims.iter().product());
    // In a dry run, no place was found.
    if skips_arithmetic() {
        return to_tensor(dx, dims);
    }
    let outputs = dys
        .par_chunks(plane.outputs())
        .zip(places.par_chunks(plane.outputs()));
    dx.par_chunks_mut(plane.height * plane.width)
        .zip(outputs)
        .for_each(|(dx, (dy, places))| {
            dx.fill(T::zero());
            for (at, (&dy, &place)) in dy.iter().zip(places).enumerate() {
                dx[plane.pixel(at, place)] += dy;
            }
        });
    to_tensor(dx, dims)
}
