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

#[cfg(test)]
mod tests {
    use super::*;

    /// The element at this place.
    fn at(matrix: Matrix<f32>, row: usize, column: usize) -> f32 {
        matrix.values[row * matrix.row_stride + column * matrix.column_stride]
    }

    /// `out = keep * out + scale * a b` element by element; the numbers are small and whole.
    fn check(out_stride: usize, a: Matrix<f32>, b: Matrix<f32>, scale: f32, adds: bool) {
        let mut out = vec![7.0; (a.rows - 1) * out_stride + b.columns];
        let product = Product::new().scaled(scale).adding(adds);
        product.write(&mut out, out_stride, a, b);
        for (place, found) in out.iter().enumerate() {
            let (row, column) = (place / out_stride, place % out_stride);
            let inner = (0..a.columns).map(|i| at(a, row, i) * at(b, i, column.min(b.columns - 1)));
            let kept = if adds { 7.0 } else { 0.0 };
            let expected = if column < b.columns {
                kept + scale * inner.sum::<f32>()
            } else {
                // Between two rows nothing is written.
                7.0
            };
            assert_eq!(*found, expected, "row {row}, column {column}");
        }
    }

    /// Run by miri and by the address sanitizer: every pointer stays inside its slice, which ends
    /// with the last element.
    #[test]
    fn products_stay_inside_their_slices() {
        let values = |count: usize| -> Vec<f32> { (0..count).map(|i| (i % 5) as f32).collect() };
        // Rows with a gap of two elements, which the last row does not have.
        let (strided, whole) = (values(2 * 5 + 3), values(3 * 4));
        for (scale, adds) in [(1.0, false), (2.0, true)] {
            let a = Matrix::strided(&strided, 3, 3, 5);
            let b = Matrix::rows(&whole, 3, 4);
            check(4, a, b, scale, adds);
            check(6, a, b, scale, adds);
            check(3, b.transposed(), a.transposed(), scale, adds);
            check(
                1,
                b.transposed(),
                Matrix::rows(&whole[..3], 3, 1),
                scale,
                adds,
            );
        }
    }

    #[test]
    #[should_panic(expected = "row_stride")]
    fn a_matrix_beyond_its_slice_is_refused() {
        let _ = Matrix::strided(&[0.0f32; 12], 3, 3, 5);
    }

    #[test]
    #[should_panic(expected = "the product fits its buffer")]
    fn a_product_beyond_its_buffer_is_refused() {
        let values = [0.0f32; 6];
        let (a, b) = (Matrix::rows(&values, 3, 2), Matrix::rows(&values, 2, 3));
        Product::new().write(&mut [0.0; 8], 3, a, b);
    }
}
