//! `silu(x) = x sigmoid(x)`, element by element (Elfwing et al. 2017). Backward: `dx = dy s (1 + x
//! (1 - s))`, with `s = sigmoid(x)` recomputed. Saved: `x`, from which operations that need the
//! output recompute it.

use super::sigmoid::{composed_sigmoid, sigmoid};
use super::unary_elementwise::{Keeps, Pointwise};
use crate::cpu::Float;
use crate::error::Result;
use crate::kernels::elementwise::Function;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

struct Silu;

impl Tape<'_> {
    /// `x / (1 + e^-x)`, any shape.
    pub fn silu(&self, x: &Value) -> Result<Value> {
        self.pointwise::<Silu>(x)
    }
}

impl Pointwise for Silu {
    const OP: &'static str = "silu";
    const KEEPS: Keeps = Keeps::Input;
    const KERNEL: Option<Function> = Some(Function::Silu);

    #[inline(always)]
    fn value<T: Float>(x: T) -> T {
        x * sigmoid(x)
    }

    #[inline(always)]
    fn slope<T: Float>(x: T) -> T {
        let s = sigmoid(x);
        s * (T::one() + x * (T::one() - s))
    }

    fn composed(x: &Tensor) -> Result<Tensor> {
        Ok((x * composed_sigmoid(x)?)?)
    }

    fn composed_slope(x: &Tensor) -> Result<Tensor> {
        let s = composed_sigmoid(x)?;
        let rise = ((x * (s.neg()? + 1.0)?)? + 1.0)?;
        Ok((s * rise)?)
    }
}
