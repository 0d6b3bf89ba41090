//! Copies that operations need to change a layout, by Ebb's kernels on a GPU and by candle
//! elsewhere. The values are the same bits.

use crate::error::Result;
use crate::kernels::copies;
use crate::ops::stock_product;
use crate::tape::{Kernels, Tape};
use crate::unshared_copy;
use candle_core::Tensor;

/// How the operations of a tape copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copies {
    /// False if the tape composes everything of tensor primitives.
    by_kernels: bool,
}

impl Tape<'_> {
    pub(super) fn copies(&self) -> Copies {
        Copies {
            by_kernels: self.kernels() == Kernels::Fused,
        }
    }

    /// `a b` of matrices or of batches of them. For data that needs no gradient.
    pub fn product(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        stock_product(a, b)
    }

    /// `x`, contiguous. For data that needs no gradient.
    pub fn contiguous(&self, x: &Tensor) -> Result<Tensor> {
        self.copies().contiguous(x)
    }

    /// Tensors joined along an axis. For data that needs no gradient.
    pub fn join(&self, parts: &[&Tensor], axis: usize) -> Result<Tensor> {
        self.copies().joined(parts, axis)
    }
}

impl Copies {
    /// `x` itself if it is contiguous, otherwise a copy.
    pub fn contiguous(self, x: &Tensor) -> Result<Tensor> {
        if x.is_contiguous() {
            return Ok(x.clone());
        }
        self.owned(x)
    }

    /// A contiguous copy in memory of its own.
    pub fn owned(self, x: &Tensor) -> Result<Tensor> {
        // For a contiguous tensor the device has a plain copy.
        if self.by_kernels
            && !x.is_contiguous()
            && let Some(y) = copies::try_contiguous(x)?
        {
            return Ok(y);
        }
        unshared_copy::copy(x)
    }

    /// Tensors joined along an axis, in which alone they differ. A single one is not copied.
    pub fn joined(self, parts: &[&Tensor], axis: usize) -> Result<Tensor> {
        if self.by_kernels
            && parts.len() > 1
            && let Some(y) = copies::try_joined(parts, axis)?
        {
            return Ok(y);
        }
        copies::joined_by_candle(parts, axis)
    }

    /// `x` with zeros before and after it along an axis. Without zeros it is not copied.
    pub fn padded(self, x: &Tensor, axis: usize, zeros: (usize, usize)) -> Result<Tensor> {
        if self.by_kernels
            && zeros != (0, 0)
            && let Some(y) = copies::padded(x, axis, zeros.0, zeros.1)?
        {
            return Ok(y);
        }
        let x = copies::contiguous_on_metal(x)?;
        Ok(x.pad_with_zeros(axis, zeros.0, zeros.1)?)
    }
}
