//! The exact Gaussian error linear unit (Hendrycks and Gimpel 2016): `y = x P(x)`, with `P` the
//! cumulative normal distribution. BERT and ViT weights are trained with this form. Backward: `dx =
//! dy (P(x) + x e^(-x²/2) / sqrt(2 pi))`. Saved: `x`, from which operations that need the output
//! recompute it.

use super::unary_elementwise::{Keeps, Pointwise};
use crate::cpu::Float;
use crate::error::Result;
use crate::kernels::elementwise::Function;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

struct GeluErf;

/// `1 / sqrt(2 pi)`.
const DENSITY: f64 = 0.398_942_280_401_432_7;

impl Tape<'_> {
    /// `x/2 (1 + erf(x / sqrt 2))`, any shape.
    pub fn gelu_erf(&self, x: &Value) -> Result<Value> {
        self.pointwise::<GeluErf>(x)
    }
}

impl Pointwise for GeluErf {
    const OP: &'static str = "gelu_erf";
    const KEEPS: Keeps = Keeps::Input;
    const KERNEL: Option<Function> = Some(Function::GeluExact);

    #[inline(always)]
    fn value<T: Float>(x: T) -> T {
        x * x.normal_share()
    }

    #[inline(always)]
    fn slope<T: Float>(x: T) -> T {
        x.normal_share()
            + x * T::from_constant(DENSITY) * (T::from_constant(-0.5) * x * x).exponential()
    }

    fn composed(x: &Tensor) -> Result<Tensor> {
        Ok((x * composed_share(x)?)?)
    }

    fn composed_slope(x: &Tensor) -> Result<Tensor> {
        let density = ((x.sqr()? * -0.5)?.exp()? * DENSITY)?;
        Ok((composed_share(x)? + (x * density)?)?)
    }
}

fn composed_share(x: &Tensor) -> Result<Tensor> {
    Ok((((x * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5)?)
}
