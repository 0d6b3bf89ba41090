//! Sums whose order the shape determines: partial sums over chunks of rows, added in order. The
//! number of threads only decides which thread computes a chunk.

use crate::cpu::{Float, buffer, wide};
use rayon::prelude::*;

/// Elements per chunk of a reduction or a row-wise kernel: enough work for a task, and the same on
/// every machine.
const CHUNK_ELEMENTS: usize = 16 * 1024;

/// Rows per chunk for rows of `width` elements.
pub(crate) fn row_chunks(width: usize) -> usize {
    (CHUNK_ELEMENTS / width.max(1)).max(1)
}

/// Sums a `rows × width` matrix over its rows.
pub(crate) fn column_sums<T: Float>(values: &[T], width: usize) -> Vec<T> {
    let chunk = row_chunks(width) * width;
    let partial: Vec<Vec<T>> = values
        .par_chunks(chunk)
        .map(|rows| {
            let mut sums = vec![T::zero(); width];
            wide(
                #[inline(always)]
                || {
                    for row in rows.chunks_exact(width) {
                        sums.iter_mut().zip(row).for_each(|(sum, &v)| *sum += v);
                    }
                },
            );
            sums
        })
        .collect();
    add_in_order(partial, width)
}

/// Adds partial sums one after the other, in parallel over their width.
pub(crate) fn add_in_order<T: Float>(partial: Vec<Vec<T>>, width: usize) -> Vec<T> {
    let mut partial = partial.into_iter();
    let Some(mut total) = partial.next() else {
        return vec![T::zero(); width];
    };
    let rest: Vec<Vec<T>> = partial.collect();
    let chunks = total.par_chunks_mut(CHUNK_ELEMENTS).enumerate();
    chunks.for_each(|(i, total)| {
        for sums in &rest {
            let sums = &sums[i * CHUNK_ELEMENTS..];
            wide(
                #[inline(always)]
                || {
                    total
                        .iter_mut()
                        .zip(sums)
                        .for_each(|(total, &v)| *total += v);
                },
            );
        }
    });
    total
}

/// A new buffer with `f` of every element of `x`.
pub(crate) fn map<T: Float>(x: &[T], f: impl Fn(T) -> T + Sync) -> Vec<T> {
    let mut out = buffer(x.len());
    out.par_chunks_mut(CHUNK_ELEMENTS)
        .zip(x.par_chunks(CHUNK_ELEMENTS))
        .for_each(|(out, x)| {
            wide(
                #[inline(always)]
                || out.iter_mut().zip(x).for_each(|(o, &x)| *o = f(x)),
            );
        });
    out
}

/// A new buffer with `f` of every pair of elements.
pub(crate) fn map2<T: Float>(x: &[T], y: &[T], f: impl Fn(T, T) -> T + Sync) -> Vec<T> {
    let mut out = buffer(x.len());
    out.par_chunks_mut(CHUNK_ELEMENTS)
        .zip(x.par_chunks(CHUNK_ELEMENTS))
        .zip(y.par_chunks(CHUNK_ELEMENTS))
        .for_each(|((out, x), y)| {
            wide(
                #[inline(always)]
                || {
                    out.iter_mut()
                        .zip(x)
                        .zip(y)
                        .for_each(|((o, &x), &y)| *o = f(x, y))
                },
            );
        });
    out
}
