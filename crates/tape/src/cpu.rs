//! Shared code of the CPU kernels: views of tensors as slices, new buffers, matrix products, and
//! reductions in an order that depends on the shape only.

mod tensor_view;
mod threads;
mod exponential;
mod normal_cdf;
mod simd_dispatch;
pub(crate) mod vectorized_rows;
mod reduce;
mod matmul;
pub(crate) mod im2col;
mod channel_panels;
pub(crate) mod winograd;

pub(crate) use matmul::{Matrix, Product};
pub(crate) use reduce::{add_in_order, column_sums, map, map2, row_chunks};
pub(crate) use simd_dispatch::wide;
pub(crate) use tensor_view::{Float, View, buffer, is_fused, to_tensor};
pub(crate) use threads::{buffer_for_job, scratch_of_other_threads, skips_arithmetic, threads};

/// Runs `$body` with `$float` bound to the element type of a CPU tensor.
macro_rules! with_float {
    ($op:literal, $tensor:expr, $float:ident => $body:expr) => {
        match $tensor.dtype() {
            candle_core::DType::F32 => {
                type $float = f32;
                $body
            }
            candle_core::DType::F64 => {
                type $float = f64;
                $body
            }
            dtype => Err($crate::error::TapeError::Type { op: $op, dtype }),
        }
    };
}
pub(crate) use with_float;
