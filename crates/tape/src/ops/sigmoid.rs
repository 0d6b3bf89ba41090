//! `sigmoid(x) = 1 / (1 + e^-x)`, element by element. Backward: `dx = dy y (1 - y)`. Saved: `y`.

use super::unary_elementwise::{Keeps, Pointwise};
use crate::cpu::Float;
use crate::error::Result;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

struct Sigmoid;

impl Tape<'_> {
    /// `1 / (1 + e^-x)`, any shape.
    pub fn sigmoid(&self, x: &Value) -> Result<Value> {
        self.pointwise::<Sigmoid>(x)
    }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<T: Float>(x: T) -> T {
    T::one() / (T::one() + (-x).exponential())
}

/// [`sigmoid`], composed of tensor primitives.
pub(super) fn composed_sigmoid(x: &Tensor) -> Result<Tensor> {
    Ok((x.neg()?.exp()? + 1.0)?.recip()?)
}

impl Pointwise for Sigmoid {
    const OP: &'static str = "sigmoid";
    const KEEPS: Keeps = Keeps::Output;

    #[inline(always)]
    fn value<T: Float>(x: T) -> T {
        sigmoid(x)
    }

    #[inline(always)]
    fn slope<T: Float>(y: T) -> T {
        y * (T::one() - y)
    }

    fn composed(x: &Tensor) -> Result<Tensor> {
        composed_sigmoid(x)
    }

    fn composed_slope(y: &Tensor) -> Result<Tensor> {
        Ok((y - y.sqr()?)?)
    }
}
