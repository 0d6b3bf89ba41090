//! A moment with one byte per value and one f32 scale per block (block-wise quantization, Dettmers
//! et al. 2022). The map from codes to values is a power, so that it needs no table and also runs
//! as tensor primitives:
//!
//! - first moment, signed: code `128 + c`, `c` in -127..=127, stands for `sign(c) (c / 127)²` times
//!   the block's largest absolute value;
//! - second moment, unsigned: code `c` in 0..=255 stands for `(c / 255)⁴` times the block's largest
//!   value, so that its root, by which AdamW divides, has the same square map. A positive value is
//!   never rounded to zero: steps may become shorter, never longer.
//!
//! Stochastic rounding keeps values right on average: rounding to nearest would swallow changes of
//! a tenth of a percent per step. The draw is a function of (seed, name, step) and of the element's
//! place, so a resumed run rounds the same way: one table of a block's draws, rotated by a
//! different amount for each block (Cranley and Patterson 1976).

use super::Element;
use crate::cpu::vectorized_rows;
use crate::error::Result;
use crate::inplace::{SliceMut, with_slice_mut};
use crate::rng::Rng;
use candle_core::{D, DType, Tensor};

/// Values per scale.
pub const BLOCK: usize = 256;
/// The smallest scale, so that a block of zeros is not divided by zero.
const LEAST: f64 = 1e-30;

/// A moment of one parameter.
#[derive(Debug, Clone)]
pub struct ByteMoment {
    /// One byte per value, in the shape of the parameter.
    pub codes: Tensor,
    /// One f32 per block of [`BLOCK`] values in storage order; the last block may be short.
    pub scales: Tensor,
}

impl ByteMoment {
    /// All zero. It comes from host data, so that a device allocates the exact size.
    pub fn zeros(parameter: &Tensor) -> Result<Self> {
        let (count, device) = (parameter.elem_count(), parameter.device());
        let blocks = count.div_ceil(BLOCK);
        Ok(ByteMoment {
            codes: Tensor::from_vec(vec![0u8; count], parameter.shape(), device)?,
            scales: Tensor::from_vec(vec![0f32; blocks], blocks, device)?,
        })
    }

    /// Lends codes and scales to `write`. On the CPU only.
    pub(super) fn borrow_mut<F>(&mut self, write: F) -> candle_core::Result<()>
    where
        F: FnOnce(&mut [u8], &mut [f32]) -> candle_core::Result<()>,
    {
        with_slice_mut(&self.codes, |codes| {
            with_slice_mut(&self.scales, |scales| match (codes, scales) {
                (SliceMut::U8(codes), SliceMut::F32(scales)) => write(codes, scales),
                _ => super::element_trait::type_mismatch(),
            })
        })
    }

    /// The values as [blocks, BLOCK] in `dtype`, padded with zeros; for devices without fused
    /// kernels.
    pub(super) fn values(&self, map: Map, dtype: DType) -> Result<Tensor> {
        let codes = self.codes.to_dtype(dtype)?;
        let codes = match map {
            Map::Signed => grid(&(codes - 128.0)?)?,
            Map::Unsigned => grid(&codes)?,
        };
        let shares = match map {
            Map::Signed => ((&codes * codes.abs()?)? / map.top().powi(2))?,
            Map::Unsigned => (codes / map.top())?.sqr()?.sqr()?,
        };
        Ok(shares.broadcast_mul(&self.scales.to_dtype(dtype)?.unsqueeze(1)?)?)
    }

    /// Encodes values [blocks, BLOCK], rounded by the draws `uniform` of the same shape.
    pub(super) fn encode(&mut self, map: Map, values: &Tensor, uniform: &Tensor) -> Result<()> {
        let sizes = values.abs()?;
        let scales = sizes.max_keepdim(D::Minus1)?.maximum(LEAST)?;
        let scales = scales.to_dtype(DType::F32)?;
        let share = sizes.broadcast_div(&scales.to_dtype(values.dtype())?)?;
        let root = share.sqrt()?;
        let raised = |c: &Tensor| match map {
            Map::Signed => c.sqr(),
            Map::Unsigned => c.sqr()?.sqr(),
        };
        let place = match map {
            Map::Signed => (root * map.top())?,
            Map::Unsigned => (root.sqrt()? * map.top())?,
        };
        let code = place.floor()?;
        let low = raised(&code)?;
        let gap = (raised(&(&code + 1.0)?)? - &low)?;
        let chance = ((raised(&place)? - low)? / gap)?;
        let up = uniform.lt(&chance)?.to_dtype(values.dtype())?;
        let code = (code + up)?.minimum(map.top())?;
        let code = match map {
            Map::Signed => {
                let sign = values
                    .ge(0.0)?
                    .to_dtype(values.dtype())?
                    .affine(2.0, -1.0)?;
                ((code * sign)? + 128.0)?
            }
            Map::Unsigned => code.maximum(&values.gt(0.0)?.to_dtype(values.dtype())?)?,
        };
        let count = self.codes.elem_count();
        let code = code.flatten_all()?.narrow(0, 0, count)?;
        self.codes = code.to_dtype(DType::U8)?.reshape(self.codes.shape())?;
        self.scales = scales.squeeze(1)?;
        Ok(())
    }
}

/// A tensor as [blocks, BLOCK], padded with zeros.
pub(super) fn grid(tensor: &Tensor) -> Result<Tensor> {
    let flat = tensor.flatten_all()?;
    let blocks = flat.elem_count().div_ceil(BLOCK);
    let missing = blocks * BLOCK - flat.elem_count();
    Ok(flat
        .pad_with_zeros(0, 0, missing)?
        .reshape((blocks, BLOCK))?)
}

/// The map from codes to values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    /// `sign(c) (c / 127)²`.
    Signed,
    /// `(c / 255)⁴`.
    Unsigned,
}

impl Map {
    /// The largest code.
    pub(super) fn top(self) -> f64 {
        match self {
            Map::Signed => 127.0,
            Map::Unsigned => 255.0,
        }
    }
}

/// The value of a signed code, relative to the block's scale.
#[inline(always)]
pub(super) fn decode_signed<T: Element>(code: u8) -> T {
    let c = (T::from_byte(code) - T::from_constant(128.0)) * T::from_constant(1.0 / 127.0);
    c * c.abs()
}

/// The value of an unsigned code, relative to the block's scale.
#[inline(always)]
pub(super) fn decode_unsigned<T: Element>(code: u8) -> T {
    let c = T::from_byte(code) * T::from_constant(1.0 / 255.0);
    c * c * c * c
}

/// Encodes a block of first moments.
#[inline(always)]
pub(super) fn encode_signed<T: Element>(
    values: &[T],
    sizes: &[T],
    codes: &mut [u8],
    scale: &mut f32,
    uniform: impl Fn(usize) -> T,
) {
    let (top, one) = (T::from_constant(127.0), T::one());
    let inverse = one / largest(sizes, scale);
    for (i, code) in codes.iter_mut().enumerate() {
        let place = (sizes[i] * inverse).sqrt() * top;
        let low = place.floor();
        let chance = (place * place - low * low) / (low + low + one);
        let up = if uniform(i) < chance { one } else { T::zero() };
        let size = lesser(low + up, top);
        let offset = if values[i] < T::zero() { -size } else { size };
        *code = (offset + T::from_constant(128.0)).to_byte();
    }
}

/// Encodes a block of second moments.
#[inline(always)]
pub(super) fn encode_unsigned<T: Element>(
    values: &[T],
    codes: &mut [u8],
    scale: &mut f32,
    uniform: impl Fn(usize) -> T,
) {
    let (top, one) = (T::from_constant(255.0), T::one());
    let inverse = one / largest(values, scale);
    for (i, code) in codes.iter_mut().enumerate() {
        let place = (values[i] * inverse).sqrt().sqrt() * top;
        let low = place.floor();
        let (square, next) = (low * low, (low + one) * (low + one));
        let (least, square_place) = (square * square, place * place);
        let chance = (square_place * square_place - least) / (next * next - least);
        let up = if uniform(i) < chance { one } else { T::zero() };
        let floor = if values[i] > T::zero() {
            one
        } else {
            T::zero()
        };
        let size = lesser(low + up, top);
        *code = (if size > floor { size } else { floor }).to_byte();
    }
}

#[inline(always)]
fn lesser<T: Element>(a: T, b: T) -> T {
    if a < b { a } else { b }
}

/// Stores the scale of a block and returns it as stored.
#[inline(always)]
fn largest<T: Element>(sizes: &[T], scale: &mut f32) -> T {
    *scale = vectorized_rows::max(sizes).as_f32().max(LEAST as f32);
    T::from_f32(*scale)
}

/// The rounding draws of one parameter at one step.
pub(super) struct RoundingNoise {
    stream: Rng,
    /// The draws of one block in `0.0..1.0`, which every block rotates.
    table: Vec<f64>,
}

impl RoundingNoise {
    /// Draws from a stream of (seed, name, step).
    pub(super) fn new(stream: Rng) -> Self {
        let table = (0..BLOCK as u64).map(|i| stream.at(0).uniform(i)).collect();
        RoundingNoise { stream, table }
    }

    /// The table in an element type.
    pub(super) fn table<T: Element>(&self) -> Vec<T> {
        self.table.iter().map(|&v| T::from_constant(v)).collect()
    }

    /// The rotation of the table for a block and a moment.
    pub(super) fn turn(&self, map: Map, block: usize) -> f64 {
        let site = match map {
            Map::Signed => 1,
            Map::Unsigned => 2,
        };
        self.stream.at(site).uniform(block as u64)
    }

    /// The draws of `blocks` blocks as [blocks, BLOCK], with the device and element type of `like`.
    pub(super) fn tensor(&self, map: Map, blocks: usize, like: &Tensor) -> Result<Tensor> {
        let turns: Vec<f64> = (0..blocks).map(|b| self.turn(map, b)).collect();
        let on_device = |values: &[f64], shape: (usize, usize)| {
            let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            Tensor::from_vec(values, shape, like.device())?.to_dtype(like.dtype())
        };
        let sum =
            on_device(&turns, (blocks, 1))?.broadcast_add(&on_device(&self.table, (1, BLOCK))?)?;
        Ok((&sum - sum.floor()?)?)
    }
}
