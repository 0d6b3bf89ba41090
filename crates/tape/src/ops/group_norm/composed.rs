//! Group norm composed of tensor primitives, for every device. With half types, the moments and
//! everything inside are f32.

use super::{Norm, Sizes, Slopes};
use crate::convert_dtype::widened;
use crate::error::Result;
use crate::kernels::copies::{contiguous, joined};
use crate::ops::activation::{Activation, composed_relu, composed_relu_slope, composed_slope};
use candle_core::Tensor;

pub(super) fn moments(x: &Tensor, sizes: Sizes) -> Result<Tensor> {
    let grouped = widened(x)?.reshape((x.dim(0)?, sizes.groups, ()))?;
    let mean = grouped.mean_keepdim(2)?;
    let variance = grouped.broadcast_sub(&mean)?.sqr()?.mean_keepdim(2)?;
    let r = (variance + sizes.epsilon)?.sqrt()?.recip()?;
    joined(&[&mean, &r], 2)
}

/// The normalized values in the shape of `x`, and `r` [samples, groups, 1].
fn normalise(x: &Tensor, moments: &Tensor, sizes: Sizes) -> Result<(Tensor, Tensor)> {
    let grouped = widened(x)?.reshape((x.dim(0)?, sizes.groups, ()))?;
    let (mean, r) = (
        contiguous(&moments.narrow(2, 0, 1)?)?,
        contiguous(&moments.narrow(2, 1, 1)?)?,
    );
    let n = grouped.broadcast_sub(&mean)?.broadcast_mul(&r)?;
    Ok((n.reshape(x.shape())?, r))
}

impl Norm {
    /// `n w + b`.
    fn affine(&self, n: &Tensor) -> Result<Tensor> {
        let shape = (1, self.sizes.channels, 1, 1);
        Ok(n.broadcast_mul(&widened(&self.weight)?.reshape(shape)?)?
            .broadcast_add(&widened(&self.bias)?.reshape(shape)?)?)
    }
}

pub(super) fn forward(norm: &Norm, x: &Tensor, moments: &Tensor) -> Result<Tensor> {
    let z = norm.affine(&normalise(x, moments, norm.sizes)?.0)?;
    let y = match norm.activation {
        Activation::None => z,
        Activation::Relu => composed_relu(&z)?,
        Activation::Gelu => z.gelu()?,
    };
    Ok(y.to_dtype(x.dtype())?)
}

pub(super) fn backward(norm: &Norm, x: &Tensor, moments: &Tensor, dy: &Tensor) -> Result<Slopes> {
    let sizes = norm.sizes;
    let samples = x.dim(0)?;
    let (n, r) = normalise(x, moments, sizes)?;
    let dy = &widened(dy)?;
    let dz = match norm.activation {
        Activation::None => dy.clone(),
        Activation::Relu => {
            let z = norm.affine(&n)?;
            composed_relu_slope(&z, dy)?
        }
        Activation::Gelu => (dy * composed_slope(&norm.affine(&n)?)?)?,
    };
    let by_channel = |t: &Tensor| -> Result<Tensor> {
        let t = t.reshape((samples, sizes.channels, sizes.pixels))?;
        Ok(t.sum(2)?.sum(0)?)
    };
    let (dw, db) = (by_channel(&(&dz * &n)?)?, by_channel(&dz)?);
    let grouped = (samples, sizes.groups, ());
    let g = dz
        .broadcast_mul(&widened(&norm.weight)?.reshape((1, sizes.channels, 1, 1))?)?
        .reshape(grouped)?;
    let n = n.reshape(grouped)?;
    let inner =
        (g.broadcast_sub(&g.mean_keepdim(2)?)? - n.broadcast_mul(&(&g * &n)?.mean_keepdim(2)?)?)?;
    let dx = inner.broadcast_mul(&r)?.reshape(x.shape())?;
    Ok((dx.to_dtype(x.dtype())?, dw, db))
}
