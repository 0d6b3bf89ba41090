//! The alignment of a smaller operand with a larger one. Neighboring axes that all repeat, or all
//! do not, are merged.

use crate::convert_dtype::in_full;
use crate::cpu::{
    Float, View, buffer, column_sums, row_chunks, to_tensor, vectorized_rows, wide, with_float,
};
use crate::error::Result;
use crate::ops::misfit;
use crate::tape::Value;
use candle_core::Tensor;
use rayon::prelude::*;

/// An axis of the larger operand, or several merged axes.
#[derive(Debug, Clone, Copy)]
struct Axis {
    size: usize,
    repeats: bool,
}

/// The axes from first to last, without axes of size 1 and without two neighbors of the same kind.
#[derive(Debug, Clone)]
pub(super) struct BroadcastPlan(Vec<Axis>);

impl BroadcastPlan {
    /// Aligns `p` with the last axes of `x`.
    pub fn new(op: &'static str, x: &Value, p: &Value) -> Result<Self> {
        let (large, small) = (x.dims(), p.dims());
        let fits = small.len() <= large.len()
            && large
                .iter()
                .rev()
                .zip(small.iter().rev())
                .all(|(&n, &m)| m == n || m == 1);
        if !fits {
            let expected = format!("a shape that broadcasts to the last axes of {large:?}");
            return Err(misfit(op, "the repeated operand", expected, p));
        }
        let missing = large.len() - small.len();
        let mut axes: Vec<Axis> = Vec::new();
        for (i, &size) in large.iter().enumerate().filter(|(_, size)| **size != 1) {
            let repeats = i < missing || small[i - missing] != size;
            match axes.last_mut() {
                Some(last) if last.repeats == repeats => last.size *= size,
                _ => axes.push(Axis { size, repeats }),
            }
        }
        Ok(BroadcastPlan(axes))
    }

    /// `f(x, p)` for every element of `x`.
    pub fn apply<T: Float>(&self, x: &[T], p: &[T], f: impl Fn(T, T) -> T + Sync + Copy) -> Vec<T> {
        let Some((last, outer)) = self.0.split_last() else {
            return x.iter().zip(p).map(|(&x, &p)| f(x, p)).collect();
        };
        let (width, rows) = (last.size, row_chunks(last.size));
        let step = if last.repeats { 1 } else { width };
        let mut y = buffer::<T>(x.len());
        y.par_chunks_mut(rows * width)
            .zip(x.par_chunks(rows * width))
            .enumerate()
            .for_each(|(chunk, (y, x))| {
                for (row, (y, x)) in y.chunks_mut(width).zip(x.chunks(width)).enumerate() {
                    let at = place(outer, chunk * rows + row) * step;
                    if last.repeats {
                        let p = p[at];
                        wide(
                            #[inline(always)]
                            || y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x, p)),
                        );
                    } else {
                        let pairs = x.iter().zip(&p[at..at + width]);
                        wide(
                            #[inline(always)]
                            || {
                                y.iter_mut()
                                    .zip(pairs)
                                    .for_each(|(y, (&x, &p))| *y = f(x, p))
                            },
                        );
                    }
                }
            });
        y
    }

    /// Sums `values`, which have the shape of the larger operand, over all repeated axes.
    pub fn reduce(&self, values: &Tensor, fused: bool) -> Result<Tensor> {
        let sizes: Vec<usize> = self.0.iter().map(|axis| axis.size).collect();
        let repeated: Vec<usize> = (0..sizes.len()).filter(|&i| self.0[i].repeats).collect();
        if repeated.is_empty() {
            return Ok(values.clone());
        }
        if !fused {
            return in_full([values], |[values]| {
                Ok(values.reshape(sizes)?.sum(repeated)?)
            });
        }
        with_float!("broadcast", values, T => {
            let all = View::<T>::new("broadcast", values)?;
            let mut sums: Vec<T> = Vec::new();
            for (pass, &i) in repeated.iter().rev().enumerate() {
                let current: &[T] = if pass == 0 { &all } else { &sums };
                let outer: usize = sizes[..i].iter().product();
                sums = middle_sums(current, outer, sizes[i]);
            }
            let count = sums.len();
            to_tensor(sums, &[count])
        })
    }
}

/// The row of the smaller operand for row `row` of the larger one; `outer` are the axes before the
/// row's own.
fn place(outer: &[Axis], row: usize) -> usize {
    let (mut rest, mut at, mut stride) = (row, 0, 1);
    for axis in outer.iter().rev() {
        if !axis.repeats {
            at += rest % axis.size * stride;
            stride *= axis.size;
        }
        rest /= axis.size;
    }
    at
}

/// Columns per task.
const BLOCK: usize = 1024;

/// `out[o, i] = sum over m of values[o, m, i]`, in an order that the sizes determine.
fn middle_sums<T: Float>(values: &[T], outer: usize, middle: usize) -> Vec<T> {
    let inner = values.len() / (outer * middle);
    if inner == 1 {
        return values.par_chunks(middle).map(row_sum).collect();
    }
    if inner < BLOCK {
        let each = values.par_chunks(middle * inner);
        let sums = each.flat_map_iter(|values| column_sums(values, inner));
        return sums.collect();
    }
    let mut out = buffer::<T>(outer * inner);
    out.par_chunks_mut(inner).enumerate().for_each(|(o, out)| {
        let values = &values[o * middle * inner..][..middle * inner];
        out.par_chunks_mut(BLOCK).enumerate().for_each(|(b, out)| {
            out.fill(T::zero());
            wide(
                #[inline(always)]
                || {
                    for row in values.chunks_exact(inner) {
                        let block = &row[b * BLOCK..];
                        out.iter_mut().zip(block).for_each(|(sum, &v)| *sum += v);
                    }
                },
            );
        });
    });
    out
}

/// The sum of a row of any length, as partial sums added in order.
fn row_sum<T: Float>(row: &[T]) -> T {
    let parts: Vec<T> = row
        .par_chunks(row_chunks(1))
        .map(|part| {
            wide(
                #[inline(always)]
                || vectorized_rows::sum(part, |v| v),
            )
        })
        .collect();
    parts.into_iter().fold(T::zero(), |sum, part| sum + part)
}
