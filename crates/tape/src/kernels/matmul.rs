//! Matrix products of a GPU, into new memory or added to a sum. On CUDA this calls cuBLAS, like
//! candle, with three differences: a single matrix is not passed as a batch (for which cuBLAS has
//! fewer algorithms), half operands may have an f32 result, and the result may be added to a sum.
//! On Hopper, f32 products use tensor cores if that is faster, as sums of three bf16, with the same
//! precision. On Metal this calls candle's kernel with an output from our own pool. All of it is
//! full f32 without TF32.

#[cfg(feature = "cuda")]
use super::cublas;
use super::{elementwise, grouped_heads};
use crate::convert_dtype::widened;
#[cfg(any(target_os = "macos", test))]
use crate::convert_dtype::word_aligned;
use crate::error::Result;
use candle_core::Tensor;

/// `a b` of two matrices or of batches of them, in the operands' type. Each may be row-major or
/// column-major.
pub(crate) fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return cublas::product(a, b, a.dtype());
    }
    #[cfg(target_os = "macos")]
    if let Some((batch, m, n, k)) = sizes(a.dims(), b.dims()) {
        let (a, b) = (in_one_stride(a)?, in_one_stride(b)?);
        if let Some(y) = super::metal::product(&a, &b, batch, m, n, k)? {
            return Ok(y);
        }
    }
    // The emulator has no product of its own. On Metal, the one above is counted.
    #[cfg(test)]
    if super::emulator::on() {
        crate::command_buffer_budget::launch();
    }
    Ok(a.matmul(b)?)
}

/// The number of matrices, the rows and columns of each result, and the terms of each sum; `None`
/// if the shapes do not fit or nothing is to be computed.
#[cfg(any(target_os = "macos", test))]
fn sizes(a: &[usize], b: &[usize]) -> Option<(usize, usize, usize, usize)> {
    let ([a_batch @ .., m, k], [b_batch @ .., k2, n]) = (a, b) else {
        return None;
    };
    let batch = a_batch.iter().product();
    let is_empty = [batch, *m, *n, *k].contains(&0);
    (!is_empty && k == k2 && a_batch == b_batch).then_some((batch, *m, *n, *k))
}

/// A batch of matrices at equal distances: candle's kernel reads the innermost batch stride, also
/// of an axis of size 1, and ignores the others. Anything else is copied.
#[cfg(any(target_os = "macos", test))]
fn in_one_stride(x: &Tensor) -> Result<Tensor> {
    let batch = x.rank().saturating_sub(2);
    let (dims, strides) = (&x.dims()[..batch], &x.stride()[..batch]);
    let matrices: usize = dims.iter().product();
    let Some(&each) = strides.last().filter(|_| matrices > 1) else {
        return Ok(x.clone());
    };
    let mut expected = each;
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        if dim > 1 && stride != expected {
            return Ok(word_aligned(x)?.force_contiguous()?);
        }
        expected *= dim;
    }
    Ok(x.clone())
}

/// [`product`] with an f32 result. On CUDA the sums are not rounded to a half type; on Metal they
/// are, because candle's product there has the type of its operands.
pub(crate) fn product_f32(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return cublas::product(a, b, candle_core::DType::F32);
    }
    widened(&product(a, b)?)
}

/// `sum += a b`, in place. `sum` must be contiguous, f32 or of the operands' type, and its memory
/// held by nothing else.
pub(crate) fn add_product(sum: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return cublas::multiply(a, b, sum, 1.0);
    }
    let added = if sum.dtype() == a.dtype() {
        product(a, b)?
    } else {
        product_f32(a, b)?
    };
    elementwise::add_to(sum, &added)
}

/// `sum[.., first.., ..] += a b` for batches, in place. `sum` must be contiguous, f32, and its
/// memory held by nothing else. `first` and the rows of `a` are multiples of
/// [`grouped_heads::KEYS`].
pub(crate) fn add_product_to_rows(
    sum: &Tensor,
    first: usize,
    a: &Tensor,
    b: &Tensor,
) -> Result<()> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        let rows = sum.narrow(1, first, a.dim(1)?)?;
        return cublas::multiply(a, b, &rows, 1.0);
    }
    grouped_heads::add_rows(sum, &product(a, b)?, first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    fn sizes_of_a_product() {
        assert_eq!(sizes(&[3, 4], &[4, 5]), Some((1, 3, 5, 4)));
        assert_eq!(sizes(&[2, 7, 3, 4], &[2, 7, 4, 1]), Some((14, 3, 1, 4)));
        for (a, b) in [
            (&[3, 4][..], &[5, 4][..]),
            (&[2, 3, 4], &[4, 5]),
            (&[2, 3, 4], &[3, 4, 5]),
            (&[0, 4], &[4, 5]),
            (&[3, 0], &[0, 5]),
            (&[4], &[4, 5]),
        ] {
            assert_eq!(sizes(a, b), None, "{a:?} {b:?}");
        }
    }

    #[test]
    fn only_batches_with_several_strides_are_copied() {
        let x = Tensor::zeros((2, 3, 4, 5), DType::F32, &Device::Cpu).expect("small");
        let is_copied = |x: candle_core::Result<Tensor>| {
            let x = x.expect("a view");
            in_one_stride(&x).expect("small").stride() != x.stride()
        };
        assert!(!is_copied(Ok(x.clone())));
        assert!(!is_copied(x.t()), "a transposed matrix needs no copy");
        assert!(!is_copied(x.narrow(0, 1, 1)), "one stride remains");
        assert!(
            is_copied(x.narrow(1, 1, 1)),
            "candle reads even the stride of an axis of size 1"
        );
        assert!(!is_copied(x.flatten(0, 1)), "a batch of matrices");
        assert!(is_copied(x.narrow(1, 0, 2)), "a gap between the outer ones");
        assert!(is_copied(x.transpose(0, 1)), "in another order");
    }
}
