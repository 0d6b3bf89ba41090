//! Linear layer: `y = x Wᵀ + b`, with `x` [.., inputs], `W` [outputs, inputs], `b` [outputs]; or `y
//! = r + x Wᵀ + b` with `r` shaped like `y`, the end of a residual branch without a separate pass
//! for the sum.
//!
//! Backward: `dx = dy W`, `dW = dyᵀ x`, `db = sum over rows of dy`, `dr = dy`. Saved: `x` if `W`
//! needs a gradient and `x` is not cheap to recompute; `W` (a parameter: free) if `x` needs one.

use super::{Form, expect_shape};
use crate::convert_dtype::{convert, widened};
use crate::cpu::{self, Float, Matrix, Product, View, buffer, row_chunks, to_tensor, with_float};
use crate::error::Result;
use crate::gradients::Gradients;
use crate::kernels::copies::contiguous;
use crate::kernels::matmul::{add_product, product as gpu_product, product_f32};
use crate::kernels::{self, KernelGroup, elementwise, row_kernels};
use crate::ops::stock_product;
use crate::saved_input::SavedInput;
use crate::tape::{Tape, Value};
use candle_core::{DType, Shape, Tensor};
use rayon::prelude::*;

impl Tape<'_> {
    /// `x Wᵀ + b` over the last axis of `x`.
    pub fn linear(&self, x: &Value, weight: &Value, bias: Option<&Value>) -> Result<Value> {
        self.map(x, weight, bias, None)
    }

    /// `residual + x Wᵀ + b` over the last axis of `x`.
    pub fn linear_add(
        &self,
        x: &Value,
        weight: &Value,
        bias: &Value,
        residual: &Value,
    ) -> Result<Value> {
        self.map(x, weight, Some(bias), Some(residual))
    }

    fn map(
        &self,
        x: &Value,
        weight: &Value,
        bias: Option<&Value>,
        residual: Option<&Value>,
    ) -> Result<Value> {
        self.poll()?;
        let outputs = expect_fit("linear", x, weight, bias, residual)?;
        let form = self.form(KernelGroup::Linear, x.tensor());
        let inputs = weight.dims()[1];
        let rows = x.tensor().elem_count() / inputs.max(1);
        let flat = contiguous(x.tensor())?.reshape((rows, inputs))?;
        let added = Added {
            bias: bias.map(Value::tensor),
            residual: residual.map(Value::tensor),
        };
        let y = forward(&flat, weight.tensor(), added, form)?;
        let y = y.reshape([&x.dims()[..x.dims().len() - 1], &[outputs]].concat())?;
        let mut needs: Vec<&Value> = vec![x, weight];
        needs.extend(bias.into_iter().chain(residual));
        if !self.records(&needs) {
            return Ok(Value::constant(y));
        }
        let past = Past {
            ids: [x.id(), weight.id(), bias.and_then(Value::id)],
            x: weight.id().is_some().then(|| x.saved_input()),
            weight: x.id().is_some().then(|| weight.tensor().clone()),
            shape: x.tensor().shape().clone(),
            sizes: (rows, inputs, outputs),
            form,
        };
        let saved: Vec<Tensor> = past.saved();
        let residual = residual.map(Value::id);
        Ok(
            self.push(y, &saved.iter().collect::<Vec<_>>(), move |dy, sink| {
                past.backward(&dy, sink)?;
                match residual {
                    Some(id) => sink.add_shared(id, dy),
                    None => Ok(()),
                }
            }),
        )
    }
}

/// Fails if the operands do not fit, with both shapes; returns the width of the result.
pub(super) fn expect_fit(
    op: &'static str,
    x: &Value,
    weight: &Value,
    bias: Option<&Value>,
    residual: Option<&Value>,
) -> Result<usize> {
    let inputs = *x.dims().last().unwrap_or(&0);
    let outputs = weight.dims().first().copied().unwrap_or(0);
    expect_shape(op, "weight", weight, &[outputs, inputs])?;
    if let Some(bias) = bias {
        expect_shape(op, "bias", bias, &[outputs])?;
    }
    if let Some(residual) = residual {
        let shape = [&x.dims()[..x.dims().len() - 1], &[outputs]].concat();
        expect_shape(op, "residual", residual, &shape)?;
    }
    Ok(outputs)
}

/// The tensors of the backward pass.
struct Past {
    ids: [Option<usize>; 3],
    x: Option<SavedInput>,
    weight: Option<Tensor>,
    shape: Shape,
    sizes: (usize, usize, usize),
    form: Form,
}

impl Past {
    fn saved(&self) -> Vec<Tensor> {
        let x = self.x.iter().flat_map(SavedInput::tensors);
        x.chain(&self.weight).cloned().collect()
    }

    fn backward(self, dy: &Tensor, sink: &mut Gradients) -> Result<()> {
        let ((rows, inputs, outputs), [x_id, w_id, b_id]) = (self.sizes, self.ids);
        let dy = contiguous(dy)?.reshape((rows, outputs))?;
        if b_id.is_some() {
            sink.add_owned(b_id, row_sum(&dy, self.form)?)?;
        }
        if let Some(x) = self.x {
            let x = x.get()?.reshape((rows, inputs))?;
            add_weight_gradient(sink, w_id, &dy, &x, self.form)?;
        }
        if let Some(w) = self.weight {
            add_input_gradient(sink, x_id, [&dy, &w], &self.shape, self.form)?;
        }
        Ok(())
    }
}

/// The addends of a product.
#[derive(Clone, Copy)]
pub(super) struct Added<'a> {
    /// Added to each row.
    pub bias: Option<&'a Tensor>,
    /// As large as the product.
    pub residual: Option<&'a Tensor>,
}

/// `x Wᵀ` plus the addends.
pub(super) fn forward(x: &Tensor, weight: &Tensor, added: Added, form: Form) -> Result<Tensor> {
    let ((rows, inputs), outputs) = (x.dims2()?, weight.dim(0)?);
    if let (Form::Device, Some(bias)) = (form, added.bias) {
        let y = gpu_product(x, &weight.t()?)?;
        let residual = added.residual.map(|r| contiguous(&convert(r, y.dtype())?));
        elementwise::add_bias(&y, bias, residual.transpose()?.as_ref())?;
        return Ok(y);
    }
    if form != Form::Cpu {
        let mut y = match form {
            Form::Device => gpu_product(x, &weight.t()?)?,
            _ => stock_product(x, &weight.t()?)?,
        };
        if let Some(bias) = added.bias {
            y = y.broadcast_add(&bias.to_dtype(y.dtype())?)?;
        }
        return Ok(match added.residual {
            Some(residual) => (residual.reshape((rows, outputs))? + y)?,
            None => y,
        });
    }
    with_float!("linear", x, T => {
        let (x, w) = (View::<T>::new("linear", x)?, View::<T>::new("linear", weight)?);
        let mut y = buffer::<T>(rows * outputs);
        let product = Product::new().adding(write_addends(&mut y, outputs, added)?);
        product.parallel(true).write(&mut y, outputs, Matrix::rows(&x, rows, inputs), Matrix::rows(&w, outputs, inputs).transposed());
        to_tensor(y, &[rows, outputs])
    })
}

/// Writes the addends to `y` before the product is added to them. Returns false if there are none.
fn write_addends<T: Float>(y: &mut [T], width: usize, added: Added) -> Result<bool> {
    let held = added.residual.map(contiguous).transpose()?;
    let view = |t| View::<T>::new("linear", t);
    let bias = added.bias.map(view).transpose()?;
    let residual = held.as_ref().map(view).transpose()?;
    let chunk = (row_chunks(width) * width).max(1);
    match (residual.as_deref(), bias.as_deref()) {
        (None, None) => return Ok(false),
        (None, Some(bias)) => y.par_chunks_mut(chunk).for_each(|rows| {
            let rows = rows.chunks_exact_mut(width);
            rows.for_each(|row| row.copy_from_slice(bias));
        }),
        (Some(residual), None) => {
            let each = y.par_chunks_mut(chunk).zip(residual.par_chunks(chunk));
            each.for_each(|(y, r)| y.copy_from_slice(r));
        }
        (Some(residual), Some(bias)) => {
            let each = y.par_chunks_mut(chunk).zip(residual.par_chunks(chunk));
            each.for_each(|(y, r)| {
                cpu::wide(
                    #[inline(always)]
                    || {
                        let rows = y.chunks_exact_mut(width).zip(r.chunks_exact(width));
                        for (y, r) in rows {
                            let sums = r.iter().zip(bias).map(|(&r, &b)| r + b);
                            y.iter_mut().zip(sums).for_each(|(y, sum)| *y = sum);
                        }
                    },
                );
            });
        }
    }
    Ok(true)
}

/// `a b` of two matrices; `a` is contiguous or the transpose of a contiguous one.
pub(super) fn inner(a: &Tensor, b: &Tensor, form: Form) -> Result<Tensor> {
    match form {
        Form::Device => return gpu_product(a, b),
        Form::Composed => return stock_product(a, b),
        Form::Cpu => {}
    }
    let ((m, k), n) = (a.dims2()?, b.dim(1)?);
    with_float!("linear", a, T => {
        let plain = a.is_contiguous();
        let stored = if plain { a.clone() } else { a.t()? };
        let (left, right) = (View::<T>::new("linear", &stored)?, View::<T>::new("linear", b)?);
        let a = if plain { Matrix::rows(&left, m, k) } else { Matrix::rows(&left, k, m).transposed() };
        let mut out = buffer::<T>(m * n);
        Product::new().parallel(true).write(&mut out, n, a, Matrix::rows(&right, k, n));
        to_tensor(out, &[m, n])
    })
}

/// Adds `dW = dyᵀ x` to the gradient of the weight. A GPU sums it in f32 and, if there is a
/// gradient already, in place.
pub(super) fn add_weight_gradient(
    sink: &mut Gradients,
    id: Option<usize>,
    dy: &Tensor,
    x: &Tensor,
    form: Form,
) -> Result<()> {
    if form != Form::Device {
        return sink.add_owned(id, inner(&dy.t()?, x, form)?);
    }
    let fits = |held: &&Tensor| held.dtype() == DType::F32 && held.is_contiguous();
    match sink.accumulator(id).filter(fits) {
        Some(held) => add_product(held, &dy.t()?, x),
        None => sink.add_owned(id, product_f32(&dy.t()?, x)?),
    }
}

/// Adds `dx = dy W` to the gradient of the input, which has this shape. A GPU adds it in place to a
/// gradient that another map of the same input has left.
pub(super) fn add_input_gradient(
    sink: &mut Gradients,
    id: Option<usize>,
    operands: [&Tensor; 2],
    shape: &Shape,
    form: Form,
) -> Result<()> {
    let [dy, w] = operands;
    let fits = |held: &&Tensor| {
        held.dtype() == dy.dtype()
            && held.is_contiguous()
            && kernels::run_on(KernelGroup::Accumulate, held)
    };
    let held = sink.accumulator(id).filter(|_| form == Form::Device);
    match held.filter(fits) {
        Some(held) => add_product(&held.reshape((dy.dim(0)?, w.dim(1)?))?, dy, w),
        None => sink.add_owned(id, inner(dy, w, form)?.reshape(shape)?),
    }
}

pub(super) fn row_sum(dy: &Tensor, form: Form) -> Result<Tensor> {
    match form {
        Form::Device => return row_kernels::column_sums(dy),
        Form::Composed => return Ok(widened(dy)?.sum(0)?),
        Form::Cpu => {}
    }
    let width = dy.dim(1)?;
    with_float!("linear", dy, T => {
        to_tensor(cpu::column_sums::<T>(&View::new("linear", dy)?, width), &[width])
    })
}
