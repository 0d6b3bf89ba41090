//! Operations, one per file: formula, shapes, bytes saved, forward and backward. Each one chooses
//! its form in one line: the fused CPU kernel or the GPU kernel if there is one and the tape allows
//! it, otherwise tensor primitives ([`Tape::form`]).

mod linear;
mod low_rank;
mod gelu_linear;
mod quantized_linear;
mod matmul;
mod record_loss;
mod record_kinks;
mod class_targets;
mod linear_cross_entropy;
mod cross_entropy;
mod regression_targets;
mod element_loss;
mod binary_cross_entropy;
mod squared_error;
mod huber;
mod sample_sums;
mod attention;
mod embedding;
mod rotary_embedding;
mod conv2d;
mod layer_norm;
mod rms_norm;
mod group_norm;
mod activation;
mod unary_elementwise;
mod sigmoid;
mod tanh;
mod silu;
mod gated;
mod gelu_erf;
mod softmax;
mod arithmetic;
mod broadcast;
mod cast;
mod copies;
mod class_token;
mod reshape;
mod permute;
mod concat;
mod select;
mod noise_key;
mod dropout;
mod drop_path;
mod grouped_sums;
mod gumbel_softmax;
mod token_selection;
mod mean_pool;
mod max_pool;
mod avg_pool;

pub use activation::Activation;
pub use attention::{AttentionShape, GroupedAttention};
pub use avg_pool::PoolDivisor;
pub use class_targets::{ClassRule, ClassTargets};
pub(crate) use conv2d::conv2d_fits;
pub use conv2d::{Conv2dShape, faster_convolutions};
pub use gated::Gate;
pub use gelu_linear::GeluLinear;
pub use group_norm::Affine;
pub use gumbel_softmax::Choice;
pub use linear_cross_entropy::{IGNORED, OutputWeights};
pub use low_rank::LowRankTerm;
pub use max_pool::PoolShape;
pub use noise_key::{NoiseKey, Positions};
pub use record_loss::Loss;
pub use regression_targets::RegressionTargets;
pub use rms_norm::RmsNormShape;
pub use rotary_embedding::{JoinedHeads, Rotation};
pub use token_selection::{KeepRule, Quota, keep_probabilities};

use crate::command_buffer_budget;
use crate::cpu;
use crate::error::{Result, TapeError};
use crate::kernels::{self, KernelGroup};
use crate::tape::{Kernels, Tape, Value};
use candle_core::Tensor;

/// The implementation of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The fused CPU kernel.
    Cpu,
    /// The GPU kernel.
    Device,
    /// Tensor primitives.
    Composed,
}

impl Tape<'_> {
    /// Chooses the form by device, element type and the result of the device check. No other code
    /// decides this.
    fn form(&self, group: KernelGroup, x: &Tensor) -> Form {
        self.form_that_fits(group, x, true)
    }

    /// [`Tape::form`] of an operation whose kernel computes only some shapes; `fits` tells whether
    /// it computes this one.
    fn form_that_fits(&self, group: KernelGroup, x: &Tensor, fits: bool) -> Form {
        let form = match self.kernels() {
            Kernels::Composed => Form::Composed,
            Kernels::Fused if !fits && kernels::exist_for(x) => Form::Composed,
            Kernels::Fused if kernels::run_on(group, x) => Form::Device,
            Kernels::Fused if cpu::is_fused(x) => Form::Cpu,
            Kernels::Fused => Form::Composed,
        };
        count_composed(form == Form::Composed, x);
        form
    }

    /// True if the fused CPU kernel will run on this tensor; for operations without a GPU kernel.
    fn fuses(&self, x: &Tensor) -> bool {
        let is_fused = matches!(self.kernels(), Kernels::Fused);
        let is_fused = is_fused && !kernels::exist_for(x) && cpu::is_fused(x);
        count_composed(!is_fused, x);
        is_fused
    }
}

/// Counts an operation whose kernels candle launches on Metal, unless Ebb's own compute it.
fn count_composed(is_composed: bool, x: &Tensor) {
    if is_composed && kernels::is_metal(x.device()) {
        command_buffer_budget::composed();
    }
}

/// `a b` of matrices or of batches of them, by the device's own product. In a dry run, zeros of the
/// same size.
fn stock_product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.device().is_metal() {
        // candle's product as well, but its output is not rounded up to a power of two.
        return kernels::matmul::product(a, b);
    }
    if !cpu::skips_arithmetic() {
        return Ok(a.matmul(b)?);
    }
    let rows = &a.dims()[..a.rank().saturating_sub(1)];
    let shape = [rows, &b.dims()[b.rank().saturating_sub(1)..]].concat();
    Ok(Tensor::zeros(shape, a.dtype(), a.device())?)
}

/// A result whose values nothing reads: one zero, broadcast to `dims`.
pub(crate) fn shape_only(like: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let zero = Tensor::zeros((), like.dtype(), like.device())?;
    Ok(zero.broadcast_as(dims)?)
}

/// The error for a value that does not have the `expected` shape.
fn misfit(op: &'static str, what: &str, expected: impl Into<String>, found: &Value) -> TapeError {
    TapeError::Shape {
        op,
        what: what.to_owned(),
        expected: expected.into(),
        found: found.tensor().shape().clone(),
    }
}

/// The sizes of `value` by axis.
///
/// # Errors
/// It does not have `N` axes.
fn axes<const N: usize>(op: &'static str, what: &str, value: &Value) -> Result<[usize; N]> {
    value
        .dims()
        .try_into()
        .map_err(|_| misfit(op, what, format!("a shape of {N} axes"), value))
}

/// Fails unless `value` has the shape `expected`.
fn expect_shape(op: &'static str, what: &str, value: &Value, expected: &[usize]) -> Result<()> {
    if value.dims() == expected {
        return Ok(());
    }
    Err(misfit(op, what, format!("{expected:?}"), value))
}

/// Fails if an axis has no entries.
fn expect_filled(op: &'static str, what: &str, value: &Value) -> Result<()> {
    if value.tensor().elem_count() > 0 {
        return Ok(());
    }
    Err(misfit(op, what, "at least one entry in every axis", value))
}

/// Fails if `value` is a scalar.
fn expect_an_axis(op: &'static str, what: &str, value: &Value) -> Result<()> {
    if !value.dims().is_empty() {
        return Ok(());
    }
    Err(misfit(op, what, "at least one axis", value))
}
