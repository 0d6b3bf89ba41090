//! Operations, one a file: formula, shapes, bytes saved, forward, backward. Each picks its form in one line: the fused CPU
//! kernel where there is one and the tape allows it, else tensor primitives.

mod linear;
mod quantised_linear;
mod linear_cross_entropy;
mod cross_entropy;
mod attention;
mod embedding;
mod conv2d;
mod layer_norm;
mod group_norm;
mod activation;
mod arithmetic;
mod shape;
mod pool;
mod max_pool;

pub use activation::Activation;
pub use attention::AttentionShape;
pub use conv2d::Conv2dShape;
pub use cross_entropy::Loss;
pub use linear_cross_entropy::IGNORED;
pub use max_pool::PoolShape;

use crate::cpu;
use crate::error::{Result, TapeError};
use crate::tape::{Kernels, Tape, Value};
use candle_core::Tensor;

impl Tape<'_> {
    /// True when the fused CPU kernel is to run on this tensor.
    fn fuses(&self, x: &Tensor) -> bool {
        self.kernels() == Kernels::Fused && cpu::is_fused(x)
    }
}

/// The sizes of `value` by axis, or an error with the operation, the operand and its shape.
fn axes<const N: usize>(op: &'static str, what: &str, value: &Value) -> Result<[usize; N]> {
    value.dims().try_into().map_err(|_| TapeError::Shape {
        op,
        what: what.to_owned(),
        expected: format!("a shape of {N} axes"),
        found: value.tensor().shape().clone(),
    })
}

/// Fails with the operation, the operand and both shapes unless `dims` is what is needed.
fn expect_shape(op: &'static str, what: &str, value: &Value, expected: &[usize]) -> Result<()> {
    if value.dims() == expected {
        return Ok(());
    }
    Err(TapeError::Shape {
        op,
        what: what.to_owned(),
        expected: format!("{expected:?}"),
        found: value.tensor().shape().clone(),
    })
}
