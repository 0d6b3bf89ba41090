//! Linear layer with a frozen, quantized weight: `y = x Wᵀ + b`, with `x` [.., inputs], `W`
//! [outputs, inputs] as codes, `b` [outputs].
//!
//! Backward: `dx = dy W`, `db = sum over rows of dy`; there is no gradient of `W`. Both passes read
//! `W` in tiles of rows, so that only 256 kB of it are in floating point at once, on a GPU 16 MB. A
//! GPU adds `dx` in place to a gradient that another map of the same input has left.
//! Saved: the codes and scales of `W`, shared with the model; nothing of `x`, and nothing at all if
//! only `b` needs a gradient.

use super::copies::Copies;
use super::linear::{add_input_gradient, row_sum};
use super::{Form, expect_shape, misfit};
use crate::cpu::{Float, Matrix, Product, View, buffer, skips_arithmetic, to_tensor, with_float};
use crate::error::{Result, TapeError};
use crate::gradients::Gradients;
use crate::kernels::copies::{contiguous, joined};
use crate::kernels::matmul::product;
use crate::kernels::{KernelGroup, elementwise};
use crate::ops::stock_product;
use crate::quantized::Quantized;
use crate::tape::{Tape, Value};
use candle_core::{Shape, Tensor};

impl Tape<'_> {
    /// `x Wᵀ + b` over the last axis of `x`.
    pub fn quantized_linear(
        &self,
        x: &Value,
        weight: &Quantized,
        bias: Option<&Value>,
    ) -> Result<Value> {
        self.poll()?;
        let [outputs, inputs] = weight.dims();
        if x.dims().last() != Some(&inputs) {
            let expected = format!("a last axis of {inputs}");
            return Err(misfit(
                "quantized_linear",
                &format!("x for a weight of shape [{outputs}, {inputs}]"),
                expected,
                x,
            ));
        }
        if let Some(bias) = bias {
            expect_shape("quantized_linear", "bias", bias, &[outputs])?;
        }
        let form = self.form(KernelGroup::QuantizedLinear, x.tensor());
        let fused = form == Form::Cpu;
        let rows = x.tensor().elem_count() / inputs.max(1);
        let flat = contiguous(x.tensor())?.reshape((rows, inputs))?;
        let copies = self.copies();
        let y = match form {
            Form::Device => device_forward(&flat, weight, bias.map(Value::tensor), copies)?,
            _ => forward(&flat, weight, bias.map(Value::tensor), fused)?,
        };
        let y = y.reshape([&x.dims()[..x.dims().len() - 1], &[outputs]].concat())?;
        let mut needs = vec![x];
        needs.extend(bias);
        if !self.records(&needs) {
            return Ok(Value::constant(y));
        }
        let (x_id, b_id) = (x.id(), bias.and_then(Value::id));
        let shape = x.tensor().shape().clone();
        let weight = x_id.is_some().then(|| weight.clone());
        let held = weight.clone();
        let saved = held.iter().flat_map(Quantized::parts).collect::<Vec<_>>();
        Ok(self.push(y, &saved, move |dy, sink| {
            let dy = contiguous(&dy)?.reshape((rows, outputs))?;
            if b_id.is_some() {
                sink.add_owned(b_id, row_sum(&dy, form)?)?;
            }
            if let Some(weight) = weight {
                if form == Form::Device {
                    return add_device_gradient(sink, x_id, &dy, &weight, &shape, copies);
                }
                sink.add_owned(x_id, input_gradient(&dy, &weight, fused)?.reshape(shape)?)?;
            }
            Ok(())
        }))
    }

    /// Row `ids[i]` of a quantized matrix [vocabulary, width] for every token: [.., width] in f32.
    /// `ids` have the shape `shape`. Nothing is recorded, because ids have no gradient and the
    /// matrix is frozen.
    pub fn quantized_embedding(
        &self,
        weight: &Quantized,
        ids: &[u32],
        shape: &[usize],
    ) -> Result<Value> {
        self.poll()?;
        let [vocabulary, width] = weight.dims();
        if let Some(row) = ids.iter().position(|&id| id as usize >= vocabulary) {
            return Err(TapeError::Label {
                row,
                label: ids[row],
                classes: vocabulary,
            });
        }
        let rows = match self.form(KernelGroup::QuantizedLinear, weight.parts()[1]) {
            Form::Device if weight.is_indexable(ids.len()) => weight.device_rows(ids)?,
            form => weight.rows(ids, form == Form::Cpu)?,
        };
        Ok(Value::constant(rows.reshape([shape, &[width]].concat())?))
    }
}

/// `x Wᵀ + b` on a GPU, of each tile by one kernel and one product.
fn device_forward(
    x: &Tensor,
    weight: &Quantized,
    bias: Option<&Tensor>,
    copies: Copies,
) -> Result<Tensor> {
    let part = |(first, count)| -> Result<Tensor> {
        product(x, &weight.device_tile(first, count, x.dtype())?.t()?)
    };
    let parts = weight.device_tiles().map(part);
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let y = copies.joined(&parts.iter().collect::<Vec<_>>(), 1)?;
    drop(parts);
    if let Some(bias) = bias {
        elementwise::add_bias(&y, bias, None)?;
    }
    Ok(y)
}

/// Adds `dy W` to the gradient of the input, which has this shape: on a GPU, one tile after the
/// other.
fn add_device_gradient(
    sink: &mut Gradients,
    id: Option<usize>,
    dy: &Tensor,
    weight: &Quantized,
    shape: &Shape,
    copies: Copies,
) -> Result<()> {
    for (first, count) in weight.device_tiles() {
        let part = copies.contiguous(&dy.narrow(1, first, count)?)?;
        let tile = weight.device_tile(first, count, dy.dtype())?;
        add_input_gradient(sink, id, [&part, &tile], shape, Form::Device)?;
    }
    Ok(())
}

/// `x Wᵀ + b` on the CPU, or by tensor primitives.
pub(super) fn forward(
    x: &Tensor,
    weight: &Quantized,
    bias: Option<&Tensor>,
    fused: bool,
) -> Result<Tensor> {
    let ((rows, inputs), [outputs, _]) = (x.dims2()?, weight.dims());
    if !fused {
        let part = |(first, count)| -> Result<Tensor> {
            stock_product(x, &weight.tile(first, count, x.dtype())?.t()?)
        };
        let parts = weight.tiles().map(part).collect::<Result<Vec<_>>>()?;
        let y = joined(&parts.iter().collect::<Vec<_>>(), 1)?;
        return Ok(match bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        });
    }
    with_float!("quantized_linear", x, T => {
        let x = View::<T>::new("quantized_linear", x)?;
        let mut y = buffer::<T>(rows * outputs);
        if let Some(bias) = bias {
            let bias = View::<T>::new("quantized_linear", bias)?;
            y.chunks_exact_mut(outputs).for_each(|row| row.copy_from_slice(&bias));
        }
        write_scores(&mut y, Matrix::rows(&x, rows, inputs), weight, bias.is_some())?;
        to_tensor(y, &[rows, outputs])
    })
}

/// Writes `x Wᵀ` to the rows of `y`, or adds it to them.
pub(super) fn write_scores<T: Float>(
    y: &mut [T],
    x: Matrix<T>,
    weight: &Quantized,
    adds: bool,
) -> Result<()> {
    let [outputs, inputs] = weight.dims();
    let product = Product::new().adding(adds).parallel(true);
    let mut tile = Vec::new();
    for (first, count) in weight.tiles() {
        let w = read_tile::<T>(weight, first, count, &mut tile)?;
        let w = Matrix::rows(w, count, inputs).transposed();
        product.write(&mut y[first..], outputs, x, w);
    }
    Ok(())
}

/// `dy W`, the sum over tiles in order.
pub(super) fn input_gradient(dy: &Tensor, weight: &Quantized, fused: bool) -> Result<Tensor> {
    let (rows, [_, inputs]) = (dy.dim(0)?, weight.dims());
    if !fused {
        let mut sum = None;
        for (first, count) in weight.tiles() {
            let dy_part = contiguous(&dy.narrow(1, first, count)?)?;
            let share = stock_product(&dy_part, &weight.tile(first, count, dy.dtype())?)?;
            sum = Some(match sum {
                None => share,
                Some(sum) => (sum + share)?,
            });
        }
        return Ok(sum.expect("a quantized matrix has rows"));
    }
    with_float!("quantized_linear", dy, T => {
        let dy = View::<T>::new("quantized_linear", dy)?;
        let mut dx = buffer::<T>(rows * inputs);
        write_input_gradient(&mut dx, &dy, weight)?;
        to_tensor(dx, &[rows, inputs])
    })
}

/// Writes `dy W` to `dx`, the sum over tiles in order.
pub(super) fn write_input_gradient<T: Float>(
    dx: &mut [T],
    dy: &[T],
    weight: &Quantized,
) -> Result<()> {
    let [outputs, inputs] = weight.dims();
    let mut tile = Vec::new();
    for (first, count) in weight.tiles() {
        let w = read_tile::<T>(weight, first, count, &mut tile)?;
        let dy = Matrix::strided(&dy[first..], dy.len() / outputs, count, outputs);
        let product = Product::new().adding(first > 0).parallel(true);
        product.write(dx, inputs, dy, Matrix::rows(w, count, inputs));
    }
    Ok(())
}

/// Reads rows `first..first + count` of the weight into the buffer of the first tile.
fn read_tile<'a, T: Float>(
    weight: &Quantized,
    first: usize,
    count: usize,
    tile: &'a mut Vec<T>,
) -> Result<&'a [T]> {
    let len = count * weight.dims()[1];
    if tile.len() < len {
        *tile = buffer(len);
    }
    let rows = &mut tile[..len];
    if !skips_arithmetic() {
        weight.read(|at| first + at, rows)?;
    }
    Ok(rows)
}
