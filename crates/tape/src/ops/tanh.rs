//! `tanh x`, element by element. Backward: `dx = dy (1 - y²)`. Saved: `y`.

use super::unary_elementwise::{Keeps, Pointwise};
use crate::cpu::Float;
use crate::error::Result;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

struct Tanh;

impl Tape<'_> {
    /// `tanh x`, any shape.
    pub fn tanh(&self, x: &Value) -> Result<Value> {
        self.pointwise::<Tanh>(x)
    }
}

impl Pointwise for Tanh {
    const OP: &'static str = "tanh";
    const KEEPS: Keeps = Keeps::Output;

    #[inline(always)]
    fn value<T: Float>(x: T) -> T {
        x.hyperbolic_tangent()
    }

    #[inline(always)]
    fn slope<T: Float>(y: T) -> T {
        T::one() - y * y
    }

    fn composed(x: &Tensor) -> Result<Tensor> {
        Ok(x.tanh()?)
    }

    fn composed_slope(y: &Tensor) -> Result<Tensor> {
        Ok((y.sqr()?.neg()? + 1.0)?)
    }
}
