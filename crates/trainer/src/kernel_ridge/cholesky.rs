//! The inverse of the Cholesky factor of a kernel matrix: solves the equations of kernel ridge
//! regression, and gives the leave-one-out predictions.

use super::fixed_order_sums::{add_scaled, dot};
use rayon::prelude::*;

/// Rows that are computed together, so that they stay in the cache of the processor.
const TILE: usize = 16;

/// The inverse of the lower triangular factor `L` of `kernel + ridge I`.
pub(super) struct InverseFactor {
    /// Number of rows.
    count: usize,
    /// The columns of the inverse: [columns, rows]. The values before the diagonal are 0.
    columns: Vec<f32>,
}

impl InverseFactor {
    /// Factorizes a symmetric matrix, of which only the lower triangle is read. `None` if the user
    /// has stopped the run, or if the matrix is not positive definite.
    pub fn from_kernel(
        kernel: &[f32],
        ridge: f32,
        is_stopping: &(dyn Fn() -> bool + Sync),
    ) -> Option<Self> {
        let count = kernel.len().isqrt();
        let mut factor = kernel.to_vec();
        for i in 0..count {
            factor[i * count + i] += ridge;
        }
        factorize(&mut factor, count, is_stopping)?;
        let mut columns = vec![0.0; count * count];
        let tiles = columns.par_chunks_mut(TILE * count.max(1)).enumerate();
        let done = tiles.try_for_each(|(tile, columns)| {
            invert_tile(&factor, count, TILE * tile, columns);
            (!is_stopping()).then_some(())
        });
        done.map(|()| InverseFactor { count, columns })
    }

    /// The diagonal of the inverse of the matrix.
    pub fn inverse_diagonal(&self) -> Vec<f32> {
        let columns = self.columns.chunks_exact(self.count.max(1));
        columns.map(|column| dot(column, column)).collect()
    }

    /// Multiplies each row of `wanted`, [rows, count], by the inverse of the matrix.
    pub fn solve(&self, wanted: &[f32]) -> Vec<f32> {
        let count = self.count.max(1);
        let solve_row = |row: &[f32]| {
            let mut half = vec![0.0; count];
            let columns = || self.columns.chunks_exact(count).enumerate();
            for ((c, column), value) in columns().zip(row) {
                add_scaled(&mut half[c..], &column[c..], *value);
            }
            let values = columns().map(|(c, column)| dot(&column[c..], &half[c..]));
            values.collect::<Vec<f32>>()
        };
        wanted.par_chunks_exact(count).flat_map(solve_row).collect()
    }
}

/// Replaces the lower triangle of a matrix by its Cholesky factor, a tile of rows after the other.
fn factorize(
    matrix: &mut [f32],
    count: usize,
    is_stopping: &(dyn Fn() -> bool + Sync),
) -> Option<()> {
    for first in (0..count).step_by(TILE) {
        if is_stopping() {
            return None;
        }
        let (before, rows) = matrix.split_at_mut(first * count);
        let rows = &mut rows[..TILE.min(count - first) * count];
        // The columns of the rows before the tile, two rows of the tile on each thread at a time.
        rows.par_chunks_mut(2 * count).for_each(|rows| {
            for (j, other) in before.chunks_exact(count).enumerate() {
                for row in rows.chunks_exact_mut(count) {
                    row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
                }
            }
        });
        for i in 0..rows.len() / count {
            let (done, rest) = rows.split_at_mut(i * count);
            let row = &mut rest[..count];
            for (k, other) in done.chunks_exact(count).enumerate() {
                let j = first + k;
                row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
            }
            let i = first + i;
            let square = row[i] - dot(&row[..i], &row[..i]);
            if square.is_nan() || square <= 0.0 {
                return None;
            }
            row[i] = square.sqrt();
        }
    }
    Some(())
}

/// Computes the columns of the inverse of a lower triangular matrix from column `first` on.
fn invert_tile(factor: &[f32], count: usize, first: usize, columns: &mut [f32]) {
    for (i, row) in factor.chunks_exact(count).enumerate().skip(first) {
        for (k, column) in columns.chunks_exact_mut(count).enumerate() {
            let c = first + k;
            if c < i {
                column[i] = -dot(&row[c..i], &column[c..i]) / row[i];
            } else if c == i {
                column[i] = 1.0 / row[i];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A positive definite matrix.
    fn matrix(count: usize) -> Vec<f32> {
        let value = |i: usize, j: usize| (-0.1 * (i as f32 - j as f32).powi(2)).exp();
        (0..count * count)
            .map(|at| value(at / count, at % count))
            .collect()
    }

    #[test]
    fn a_solution_multiplied_by_the_matrix_is_what_was_wanted() {
        let (count, ridge) = (53, 0.5);
        let kernel = matrix(count);
        let wanted: Vec<f32> = (0..2 * count)
            .map(|i| ((i * 7) % 11) as f32 - 5.0)
            .collect();
        let factor = InverseFactor::from_kernel(&kernel, ridge, &|| false).expect("it is definite");
        let solved = factor.solve(&wanted);
        for (row, wanted) in solved.chunks_exact(count).zip(wanted.chunks_exact(count)) {
            for (i, expected) in wanted.iter().enumerate() {
                let found = dot(&kernel[i * count..][..count], row) + ridge * row[i];
                assert!((found - expected).abs() < 1e-3, "{found} {expected}");
            }
        }
        // The diagonal of the inverse, from the solution of unit vectors.
        let mut unit = vec![0.0; count];
        unit[20] = 1.0;
        let (own, diagonal) = (factor.solve(&unit)[20], factor.inverse_diagonal()[20]);
        assert!((own - diagonal).abs() < 1e-4, "{own} {diagonal}");
    }

    #[test]
    fn a_stop_or_an_indefinite_matrix_gives_no_factor() {
        assert!(InverseFactor::from_kernel(&matrix(40), 0.5, &|| true).is_none());
        assert!(InverseFactor::from_kernel(&[1.0, 0.0, 2.0, 1.0], 0.0, &|| false).is_none());
    }
}
