//! Matrix products on slices, at the machine's full vector width (`gemm` selects AVX-512, AVX2 or
//! NEON at run time).

use crate::cpu::Float;
use crate::cpu::threads::{skips_arithmetic, threads};
use gemm::Parallelism;

/// A matrix inside a slice; strides in elements.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T: Float> Matrix<'a, T> {
    /// A row-major matrix whose rows are `row_stride` apart.
    pub fn strided(values: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(rows == 0 || (rows - 1) * row_stride + columns <= values.len());
        Matrix {
            values,
            rows,
            columns,
            row_stride,
            column_stride: 1,
        }
    }

    /// A row-major matrix without gaps.
    pub fn rows(values: &'a [T], rows: usize, columns: usize) -> Self {
        Matrix::strided(values, rows, columns, columns)
    }

    /// The transpose, on the same values.
    pub fn transposed(self) -> Self {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// `out = keep * out + scale * a b`, with `out` row-major and rows `out_stride` apart. A `keep` of
/// zero never reads `out`.
///
/// Each element is one sum over the inner axis in an order that the shapes determine, for any
/// number of threads.
pub(crate) fn product<T: Float>(
    out: &mut [T],
    out_stride: usize,
    a: Matrix<T>,
    b: Matrix<T>,
    keep: T,
    scale: T,
    parallel: bool,
) {
    assert_eq!(a.columns, b.rows, "inner sizes of a product agree");
    assert!(
        a.rows == 0 || (a.rows - 1) * out_stride + b.columns <= out.len(),
        "the product fits its buffer"
    );
    if skips_arithmetic() {
        if keep == T::zero() {
            out.chunks_mut(out_stride.max(1))
                .take(a.rows)
                .for_each(|row| row[..b.columns].fill(T::zero()));
        }
        return;
    }
    let threads = if parallel { threads() } else { 1 };
    let parallelism = if threads > 1 {
        Parallelism::Rayon(threads)
    } else {
        Parallelism::None
    };
    // SAFETY: the constructors checked that sizes and strides of `a` and `b` stay inside their
    // slices, and the assertion above did so for `out`, which is borrowed mutably and so overlaps
    // neither.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            out.as_mut_ptr(),
            1,
            out_stride as isize,
            keep != T::zero(),
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            keep,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}
