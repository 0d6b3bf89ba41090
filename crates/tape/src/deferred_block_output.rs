//! The last operation of a checkpointed block, not yet computed. The first run computes it. The
//! second run only records it, because it needs the gradients and nothing reads the result again.

use crate::error::Result;
use crate::ops::{Conv2dShape, GeluLinear, conv2d_fits};
use crate::tape::{Tape, Value};
use std::fmt;
use std::rc::Rc;

/// Computes a value from another one.
type ValueFunction = Rc<dyn Fn(&Tape, &Value) -> Result<Value>>;

/// A function that treats each row of its input [.., width] separately, and returns as many values.
/// It is computed some rows at a time, so that the memory inside does not grow with the rows.
#[derive(Clone)]
pub struct RowFunction {
    pub(crate) x: Value,
    pub(crate) part: ValueFunction,
}

impl fmt::Debug for RowFunction {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("RowFunction")
            .field("x", &self.x)
            .finish_non_exhaustive()
    }
}

/// A block's result, or the operation that computes it.
#[derive(Debug, Clone)]
pub enum DeferredOutput {
    /// The result.
    Ready(Value),
    /// A [`Tape::gelu_linear`].
    GeluLinear(Box<GeluLinear>),
    /// A [`Tape::conv2d`] of a value with a kernel.
    Conv2d(Value, Value, Conv2dShape),
    /// A function of single rows.
    ByRows(RowFunction),
}

impl From<Value> for DeferredOutput {
    fn from(value: Value) -> Self {
        DeferredOutput::Ready(value)
    }
}

impl DeferredOutput {
    /// A function of single rows of `x` [.., width] that draws no noise: `part` maps some of the
    /// rows [rows, width] to as many rows of the same width.
    pub fn by_rows(x: Value, part: impl Fn(&Tape, &Value) -> Result<Value> + 'static) -> Self {
        let part = Rc::new(part);
        DeferredOutput::ByRows(RowFunction { x, part })
    }

    /// Checks the shapes of the operands before the operation runs, while the caller still knows
    /// their names.
    ///
    /// # Errors
    /// The operands do not fit; the error has both shapes.
    pub fn checked(self) -> Result<Self> {
        match &self {
            DeferredOutput::Ready(_) | DeferredOutput::ByRows(_) => {}
            DeferredOutput::GeluLinear(operands) => operands.expect_fit()?,
            DeferredOutput::Conv2d(x, weight, shape) => conv2d_fits(x, weight, *shape)?,
        }
        Ok(self)
    }

    /// Computes the last operation.
    pub fn finish(&self, tape: &Tape) -> Result<Value> {
        match self {
            DeferredOutput::Ready(value) => Ok(value.clone()),
            DeferredOutput::GeluLinear(operands) => tape.gelu_linear(operands),
            DeferredOutput::Conv2d(x, weight, shape) => tape.conv2d(x, weight, *shape),
            DeferredOutput::ByRows(function) => tape.by_rows(function),
        }
    }

    /// Records the last operation without computing it. The result has a shape but no meaningful
    /// values.
    pub(crate) fn record(&self, tape: &Tape) -> Result<Value> {
        match self {
            DeferredOutput::Ready(value) => Ok(value.clone()),
            DeferredOutput::GeluLinear(operands) => tape.gelu_linear_shape_only(operands),
            DeferredOutput::Conv2d(x, weight, shape) => tape.conv2d_shape_only(x, weight, *shape),
            DeferredOutput::ByRows(function) => tape.by_rows_shape_only(function),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cancel, Kernels, Parameters};
    use candle_core::{DType, Device, Tensor};

    #[test]
    fn the_second_run_does_not_compute_a_deferred_output() {
        let parameters = Parameters::default();
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let variable = |shape: &[usize]| {
            let ones = Tensor::ones(shape, DType::F32, &Device::Cpu);
            tape.variable(ones.expect("a small tensor"))
        };
        let shape = Conv2dShape {
            stride: 1,
            padding: 1,
            groups: 1,
        };
        let operands = GeluLinear {
            x: variable(&[5, 4]),
            x_is_spent: false,
            x_bias: variable(&[4]),
            weight: variable(&[3, 4]),
            bias: variable(&[3]),
            residual: variable(&[5, 3]),
        };
        for (output, dims) in [
            (DeferredOutput::GeluLinear(Box::new(operands)), vec![5, 3]),
            (
                DeferredOutput::Conv2d(variable(&[2, 3, 4, 5]), variable(&[6, 3, 3, 3]), shape),
                vec![2, 6, 4, 5],
            ),
        ] {
            let (found, left_out) = (
                output.finish(&tape).expect("shapes that fit"),
                output.record(&tape).expect("shapes that fit"),
            );
            assert_eq!((found.dims(), left_out.dims()), (&*dims, &*dims));
            let strides = left_out.tensor().stride();
            assert!(strides.iter().all(|&s| s == 0), "one number: {strides:?}");
        }
    }
}
