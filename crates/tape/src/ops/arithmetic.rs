//! Sums and factors. `add`: `x + y` of equal shape; both gradients are `dy`. `add_repeated`: `x +
//! p` for every sample, with `p` lacking the first axis; `dp` sums `dy` over the samples. `scale`:
//! `c x`. Nothing is saved.

use super::linear::row_sum;
use super::{Form, expect_shape};
use crate::cpu::{View, buffer, map2, to_tensor, wide, with_float};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::kernels::elementwise;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

impl Tape<'_> {
    /// `x + y` of equal shape.
    pub fn add(&self, x: &Value, y: &Value) -> Result<Value> {
        self.poll()?;
        expect_shape("add", "the second operand", y, x.dims())?;
        let sum = if self.fuses(x.tensor()) {
            let (a, b) = (contiguous(x.tensor())?, contiguous(y.tensor())?);
            with_float!("add", a, T => {
                let (xs, ys) = (View::<T>::new("add", &a)?, View::<T>::new("add", &b)?);
                to_tensor(map2(&xs, &ys, |x, y| x + y), a.dims())
            })?
        } else {
            (x.tensor() + y.tensor())?
        };
        if !self.records(&[x, y]) {
            return Ok(Value::constant(sum));
        }
        let (x_id, y_id) = (x.id(), y.id());
        Ok(self.push(sum, &[], move |dy, sink| {
            sink.add_shared(x_id, dy.clone())?;
            sink.add_shared(y_id, dy)
        }))
    }

    /// `x[sample] + p` for every sample, for example position embeddings.
    pub fn add_repeated(&self, x: &Value, p: &Value) -> Result<Value> {
        self.poll()?;
        expect_shape(
            "add_repeated",
            "the repeated operand",
            p,
            x.dims().get(1..).unwrap_or(&[]),
        )?;
        let form = self.form(KernelGroup::Add, x.tensor());
        let sum = match form {
            Form::Cpu => repeated(x.tensor(), p.tensor())?,
            Form::Device => elementwise::repeated(&contiguous(x.tensor())?, p.tensor())?,
            Form::Composed => {
                let p = p.tensor().to_dtype(x.tensor().dtype())?;
                x.tensor().broadcast_add(&p)?
            }
        };
        if !self.records(&[x, p]) {
            return Ok(Value::constant(sum));
        }
        let (x_id, p_id) = (x.id(), p.id());
        let (samples, shape) = (x.dims()[0], p.tensor().shape().clone());
        Ok(self.push(sum, &[], move |dy, sink| {
            if p_id.is_some() {
                let rows = contiguous(&dy)?.reshape((samples, shape.elem_count()))?;
                sink.add_owned(p_id, row_sum(&rows, form)?.reshape(shape)?)?;
            }
            sink.add_shared(x_id, dy)
        }))
    }

    /// `factor x`.
    pub fn scale(&self, x: &Value, factor: f64) -> Result<Value> {
        self.poll()?;
        let y = (x.tensor() * factor)?;
        self.unary(x, y, &[], move |dy| Ok((dy * factor)?))
    }
}

/// `x[sample] + p`.
fn repeated(x: &Tensor, p: &Tensor) -> Result<Tensor> {
    let (x, p) = (contiguous(x)?, contiguous(p)?);
    with_float!("add_repeated", x, T => {
        let (xs, ps) = (View::<T>::new("add_repeated", &x)?, View::<T>::new("add_repeated", &p)?);
        let mut sum = buffer::<T>(xs.len());
        let samples = sum.par_chunks_mut(ps.len().max(1)).zip(xs.par_chunks(ps.len().max(1)));
        samples.for_each(|(sum, x)| wide(#[inline(always)] || {
            sum.iter_mut().zip(x.iter().zip(ps.iter())).for_each(|(sum, (&x, &p))| *sum = x + p);
        }));
        to_tensor(sum, x.dims())
    })
}
