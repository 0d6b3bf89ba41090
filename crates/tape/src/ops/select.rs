//! Indexing: `select_rows` takes whole rows of the first axis, `gather` takes values of the last
//! axis row by row, `narrow` takes a range of any axis. The backward pass adds each gradient to the
//! place its value came from, in the order of the indices; the rest is zero. Saved: only the
//! indices.

use super::{Form, expect_an_axis, expect_filled, grouped_sums, misfit};
use crate::convert_dtype::in_full;
use crate::cpu::{Float, View, buffer, row_chunks, to_tensor, with_float};
use crate::error::{Result, TapeError};
use crate::kernels::copies::contiguous;
use crate::kernels::{KernelGroup, elementwise};
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;
use std::ops::Range;

fn expect_within(op: &'static str, indices: &[u32], size: usize) -> Result<()> {
    match indices.iter().position(|&index| index as usize >= size) {
        None => Ok(()),
        Some(place) => Err(TapeError::Index {
            op,
            place,
            index: indices[place],
            size,
        }),
    }
}

impl Tape<'_> {
    /// Rows `indices` of `x` [rows, ..]: [indices, ..]. An index may repeat.
    pub fn select_rows(&self, x: &Value, indices: &[u32]) -> Result<Value> {
        self.poll()?;
        expect_an_axis("select_rows", "x", x)?;
        expect_filled("select_rows", "x", x)?;
        let rows = x.dims()[0];
        expect_within("select_rows", indices, rows)?;
        let flat = self.reshape(x, &[rows, x.tensor().elem_count() / rows])?;
        let chosen = self.embedding(&flat, indices, &[indices.len()])?;
        self.reshape(&chosen, &[&[indices.len()], &x.dims()[1..]].concat())
    }

    /// `y[row, j] = x[row, indices[row, j]]` for `x` [.., width]. `indices` holds the same number
    /// of indices for every row, row by row.
    pub fn gather(&self, x: &Value, indices: &[u32]) -> Result<Value> {
        self.poll()?;
        expect_an_axis("gather", "x", x)?;
        expect_filled("gather", "x", x)?;
        let width = x.dims()[x.dims().len() - 1];
        let rows = x.tensor().elem_count() / width;
        if indices.is_empty() || !indices.len().is_multiple_of(rows) {
            let expected = format!(
                "a number of rows that divides the {} indices evenly",
                indices.len()
            );
            return Err(misfit("gather", "x", expected, x));
        }
        expect_within("gather", indices, width)?;
        let form = match self.form(KernelGroup::Gather, x.tensor()) {
            // The kernels index the values with 32 bits.
            Form::Device if indices.len() >= 1 << 31 => Form::Composed,
            form => form,
        };
        let (fused, each) = (form == Form::Cpu, indices.len() / rows);
        let input = contiguous(x.tensor())?;
        let shape = [&x.dims()[..x.dims().len() - 1], &[each]].concat();
        let y = if fused {
            with_float!("gather", input, T => {
                let xs = View::<T>::new("gather", &input)?;
                let y = indices.iter().enumerate();
                let y = y.map(|(i, &index)| xs[i / each * width + index as usize]);
                to_tensor(y.collect::<Vec<T>>(), &shape)
            })?
        } else {
            let places = Tensor::new(places(indices, each, width), input.device())?;
            input
                .flatten_all()?
                .index_select(&places, 0)?
                .reshape(shape)?
        };
        let (shape, indices) = (x.tensor().shape().clone(), indices.to_vec());
        self.unary(x, y, &[], move |dy| {
            let dy = contiguous(&dy)?;
            if fused {
                with_float!("gather", dy, T => {
                    let dys = View::<T>::new("gather", &dy)?;
                    to_tensor(scattered(&dys, &indices, each, width), shape.dims())
                })
            } else if form == Form::Device {
                let sums = elementwise::zeros(&[rows * width, 1], &dy)?;
                add_by_place(&sums, &dy, &indices, each, width)?;
                Ok(sums.to_dtype(dy.dtype())?.reshape(shape)?)
            } else {
                let places = Tensor::new(places(&indices, each, width), dy.device())?;
                in_full([&dy], |[dy]| {
                    let zeros = Tensor::zeros(shape.elem_count(), dy.dtype(), dy.device())?;
                    let sums = zeros.index_add(&places, &dy.flatten_all()?, 0)?;
                    Ok(sums.reshape(shape)?)
                })
            }
        })
    }

    /// The range `range` of `axis`; the other axes are whole.
    pub fn narrow(&self, x: &Value, axis: usize, range: Range<usize>) -> Result<Value> {
        self.poll()?;
        let size = x.dims().get(axis).copied().unwrap_or(0);
        if range.is_empty() || range.end > size {
            let expected = format!(
                "an axis {axis} that contains the range {range:?} (a range must not be empty)"
            );
            return Err(misfit("narrow", "x", expected, x));
        }
        // A range of the first axis would be a view that keeps all of `x` alive.
        let copies = self.copies();
        let y = copies.owned(&x.tensor().narrow(axis, range.start, range.len())?)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let id = x.id();
        Ok(self.push(y, &[], move |dy, sink| {
            // For the whole axis this is `dy` itself.
            let zeros = (range.start, size - range.end);
            sink.add_shared(id, copies.padded(&dy, axis, zeros)?)
        }))
    }
}

/// The flat positions of the chosen elements in `x`.
fn places(indices: &[u32], each: usize, width: usize) -> Vec<i64> {
    let places = indices.iter().enumerate();
    places
        .map(|(i, &index)| (i / each * width) as i64 + i64::from(index))
        .collect()
}

/// Adds the gradients to the places that their values came from, on a GPU.
fn add_by_place(
    sums: &Tensor,
    dy: &Tensor,
    indices: &[u32],
    each: usize,
    width: usize,
) -> Result<()> {
    let mut order: Vec<u32> = (0..indices.len() as u32).collect();
    for row in order.chunks_mut(each) {
        row.sort_by_key(|&value| indices[value as usize]);
    }
    let place = |value: u32| (value as usize / each * width) as u32 + indices[value as usize];
    let dy = dy.reshape((indices.len(), 1))?;
    grouped_sums::add_rows(sums, &dy, order, place)
}

fn scattered<T: Float>(dy: &[T], indices: &[u32], each: usize, width: usize) -> Vec<T> {
    let mut dx = buffer::<T>(dy.len() / each * width);
    let rows = row_chunks(width);
    let chosen = dy
        .par_chunks(rows * each)
        .zip(indices.par_chunks(rows * each));
    dx.par_chunks_mut(rows * width)
        .zip(chosen)
        .for_each(|(dx, (dy, indices))| {
            dx.fill(T::zero());
            for (i, (&dy, &index)) in dy.iter().zip(indices).enumerate() {
                dx[i / each * width + index as usize] += dy;
            }
        });
    dx
}
