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

/// How a product enters its buffer: `out = keep * out + scale * a b`.
#[derive(Clone, Copy)]
pub(crate) struct Product<T> {
    keep: T,
    scale: T,
    parallel: bool,
}

impl<T: Float> Product<T> {
    /// `out = a b` on the calling thread.
    pub fn new() -> Self {
        Product {
            keep: T::zero(),
            scale: T::one(),
            parallel: false,
        }
    }

    /// Multiplies the product by `scale`.
    pub fn scaled(self, scale: T) -> Self {
        Product { scale, ..self }
    }

    /// Adds to what the buffer holds if `adds`. Otherwise the buffer is never read.
    pub fn adding(self, adds: bool) -> Self {
        let keep = if adds { T::one() } else { T::zero() };
        Product { keep, ..self }
    }

    /// Uses all threads if `parallel`.
    pub fn parallel(self, parallel: bool) -> Self {
        Product { parallel, ..self }
    }

    /// Computes the product. `out` is row-major, its rows are `out_stride` apart.
    ///
    /// Each element is one sum over the inner axis in an order that the shapes determine, for any
    /// number of threads.
    pub fn write(self, out: &mut [T], out_stride: usize, a: Matrix<T>, b: Matrix<T>) {
        assert_eq!(a.columns, b.rows, "inner sizes of a product agree");
        assert!(
            a.rows == 0 || (a.rows - 1) * out_stride + b.columns <= out.len(),
            "the product fits its buffer"
        );
        let keeps = self.keep != T::zero();
        if skips_arithmetic() {
            if !keeps {
                out.chunks_mut(out_stride.max(1))
                    .take(a.rows)
                    .for_each(|row| row[..b.columns].fill(T::zero()));
            }
            return;
        }
        let threads = if self.parallel { threads() } else { 1 };
        let parallelism = if threads > 1 {
            Parallelism::Rayon(threads)
        } else {
            Parallelism::None
        };
        // SAFETY: the constructors checked that sizes and strides of `a` and `b` stay inside their
        // slices, and the assertion above did so for `out`, which is borrowed mutably and so
        // overlaps neither.
        unsafe {
            gemm::gemm(
                a.rows,
                b.columns,
                a.columns,
                out.as_mut_ptr(),
                1,
                out_stride as isize,
                keeps,
                a.values.as_ptr(),
                a.column_stride as isize,
                a.row_stride as isize,
                b.values.as_ptr(),
                b.column_stride as isize,
                b.row_stride as isize,
                self.keep,
                self.scale,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}
