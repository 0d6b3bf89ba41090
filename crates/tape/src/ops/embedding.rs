//! Embedding: row `ids[i]` of `weight` [vocabulary, width] for every token: [.., width].
//!
//! Backward: each used row sums the gradients of its tokens in token order, rows in parallel;
//! unused rows are zero. If the weight already has a gradient, such as that of a tied head, the
//! rows are added to it, so that a second gradient of that size never exists. Saved: only the ids.

use super::{Form, axes, grouped_sums};
use crate::convert_dtype::widened;
use crate::cpu::{Float, View, buffer, to_tensor, with_float};
use crate::error::{Result, TapeError};
use crate::inplace::with_slice_mut;
use crate::kernels::copies::contiguous;
use crate::kernels::{KernelGroup, elementwise};
use crate::optim::Element;
use crate::tape::{Tape, Value};
use candle_core::{DType, Tensor};
use rayon::prelude::*;

impl Tape<'_> {
    /// Looks up `ids`, which have the shape `shape`, in `weight` [vocabulary, width].
    pub fn embedding(&self, weight: &Value, ids: &[u32], shape: &[usize]) -> Result<Value> {
        self.poll()?;
        let [vocabulary, width] = axes("embedding", "weight", weight)?;
        if let Some(row) = ids.iter().position(|&id| id as usize >= vocabulary) {
            return Err(TapeError::Label {
                row,
                label: ids[row],
                classes: vocabulary,
            });
        }
        let form = match self.form(KernelGroup::Embedding, weight.tensor()) {
            // The kernels index the tokens' gradients with 32 bits.
            Form::Device if ids.len().saturating_mul(width) >= 1 << 31 => Form::Composed,
            form => form,
        };
        let fused = form == Form::Cpu;
        let rows = if fused {
            with_float!("embedding", weight.tensor(), T => {
                let w = View::<T>::new("embedding", weight.tensor())?;
                let mut y = buffer::<T>(ids.len() * width);
                y.par_chunks_mut(width).zip(ids).for_each(|(y, &id)| {
                    y.copy_from_slice(&w[id as usize * width..][..width]);
                });
                to_tensor(y, &[ids.len(), width])
            })?
        } else {
            weight
                .tensor()
                .index_select(&Tensor::new(ids, weight.tensor().device())?, 0)?
        };
        let y = rows.reshape([shape, &[width]].concat())?;
        if !self.records(&[weight]) {
            return Ok(Value::constant(y));
        }
        let (id, ids) = (weight.id(), ids.to_vec());
        Ok(self.push(y, &[], move |dy, sink| {
            let dy = contiguous(&dy)?.reshape((ids.len(), width))?;
            if let (true, Some(held)) = (fused, sink.accumulator(id)) {
                return add_rows(held, &dy, &ids);
            }
            if form == Form::Device {
                if let Some(held) = sink.accumulator(id).filter(|held| fits(held)) {
                    return add_runs(held, &dy, &ids);
                }
                let dw = elementwise::zeros(&[vocabulary, width], &dy)?;
                add_runs(&dw, &dy, &ids)?;
                return sink.add_owned(id, dw);
            }
            sink.add_owned(
                id,
                if fused {
                    rows_gradient(&dy, &ids, vocabulary)?
                } else {
                    composed_gradient(&dy, &ids, vocabulary)?
                },
            )
        }))
    }
}

/// Tokens grouped by row, in token order: a counting sort.
struct ByRow {
    begins: Vec<usize>,
    tokens: Vec<usize>,
}

impl ByRow {
    fn new(ids: &[u32], vocabulary: usize) -> Self {
        let mut begins = vec![0; vocabulary + 1];
        ids.iter().for_each(|&id| begins[id as usize + 1] += 1);
        for row in 0..vocabulary {
            begins[row + 1] += begins[row];
        }
        let (mut next, mut tokens) = (begins.clone(), vec![0; ids.len()]);
        for (token, &id) in ids.iter().enumerate() {
            tokens[next[id as usize]] = token;
            next[id as usize] += 1;
        }
        ByRow { begins, tokens }
    }

    fn tokens(&self, row: usize) -> &[usize] {
        &self.tokens[self.begins[row]..self.begins[row + 1]]
    }
}

fn rows_gradient(dy: &Tensor, ids: &[u32], vocabulary: usize) -> Result<Tensor> {
    let (width, by_row) = (dy.dim(1)?, ByRow::new(ids, vocabulary));
    with_float!("embedding", dy, T => {
        let dys = View::<T>::new("embedding", dy)?;
        let mut dw = buffer::<T>(vocabulary * width);
        dw.par_chunks_mut(width).enumerate().for_each(|(row, dw)| {
            dw.fill(T::from_constant(0.0));
            for &token in by_row.tokens(row) {
                dw.iter_mut().zip(&dys[token * width..][..width]).for_each(|(d, &v)| *d += v);
            }
        });
        to_tensor(dw, &[vocabulary, width])
    })
}

/// Adds the rows' gradients to a gradient [vocabulary, width] that nothing else holds.
fn add_rows(held: &Tensor, dy: &Tensor, ids: &[u32]) -> Result<()> {
    let (vocabulary, width) = held.dims2()?;
    let by_row = ByRow::new(ids, vocabulary);
    with_float!("embedding", dy, T => {
        let dys = View::<T>::new("embedding", dy)?;
        with_slice_mut(held, |dw| {
            let rows = <T as Element>::borrowed(dw)?.par_chunks_mut(width).enumerate();
            rows.filter(|(row, _)| !by_row.tokens(*row).is_empty()).for_each_init(
                || buffer::<T>(width),
                |sum, (row, dw)| {
                    sum.fill(T::from_constant(0.0));
                    for &token in by_row.tokens(row) {
                        sum.iter_mut().zip(&dys[token * width..][..width]).for_each(|(s, &v)| *s += v);
                    }
                    dw.iter_mut().zip(sum.iter()).for_each(|(d, &s)| *d += s);
                },
            );
            Ok(())
        })?;
        Ok(())
    })
}

/// True if a kernel may add rows to this gradient.
fn fits(held: &Tensor) -> bool {
    held.dtype() == DType::F32 && held.is_contiguous()
}

/// Adds the rows' gradients to `dw` [vocabulary, width] on a GPU.
fn add_runs(dw: &Tensor, dy: &Tensor, ids: &[u32]) -> Result<()> {
    let by_row = ByRow::new(ids, dw.dim(0)?);
    let tokens = by_row.tokens.iter().map(|&token| token as u32);
    grouped_sums::add_rows(dw, dy, tokens.collect(), |token| ids[token as usize])
}

fn composed_gradient(dy: &Tensor, ids: &[u32], vocabulary: usize) -> Result<Tensor> {
    let dy = widened(dy)?;
    let zeros =
        Tensor::zeros((vocabulary, dy.dim(1)?), DType::F32, dy.device())?.to_dtype(dy.dtype())?;
    Ok(zeros.index_add(&Tensor::new(ids, dy.device())?, &dy, 0)?)
}
