//! Changes of shape: `concat` joins along the first axis, `prepend_token` puts one row before each
//! sequence, `first_token` takes it out again, `reshape` changes the axes. Nothing is saved.

use super::linear::row_sum;
use super::{axes, expect_shape, misfit};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

impl Tape<'_> {
    /// Joins values along the first axis.
    pub fn concat(&self, parts: &[&Value]) -> Result<Value> {
        self.poll()?;
        if let Some((first, rest)) = parts.split_first() {
            for part in rest {
                let after = part.dims().first().copied().unwrap_or(0);
                let mut expected = first.dims().to_vec();
                expected.iter_mut().take(1).for_each(|n| *n = after);
                expect_shape("concat", "a later part", part, &expected)?;
            }
        }
        let tensors: Vec<&Tensor> = parts.iter().map(|v| v.tensor()).collect();
        let joined = self.copies().joined(&tensors, 0)?;
        if !self.records(parts) {
            return Ok(Value::constant(joined));
        }
        let spans: Vec<_> = parts.iter().map(|v| (v.id(), v.dims()[0])).collect();
        Ok(self.push(joined, &[], move |dy, sink| {
            let mut start = 0;
            for (id, len) in spans {
                sink.add_shared(id, dy.narrow(0, start, len)?.contiguous()?)?;
                start += len;
            }
            Ok(())
        }))
    }

    /// Puts `token` [width] before each sequence of `x` [samples, tokens, width].
    pub fn prepend_token(&self, token: &Value, x: &Value) -> Result<Value> {
        self.poll()?;
        let [samples, tokens, width] = axes("prepend_token", "x", x)?;
        expect_shape("prepend_token", "token", token, &[width])?;
        let row = token
            .tensor()
            .reshape((1, 1, width))?
            .expand((samples, 1, width))?;
        let copies = self.copies();
        let row = copies.contiguous(&row)?.to_dtype(x.tensor().dtype())?;
        let y = copies.joined(&[&row, x.tensor()], 1)?;
        if !self.records(&[token, x]) {
            return Ok(Value::constant(y));
        }
        let (token_id, x_id, form) = (
            token.id(),
            x.id(),
            self.form(KernelGroup::Sequence, x.tensor()),
        );
        Ok(self.push(y, &[], move |dy, sink| {
            if token_id.is_some() {
                let rows = copies.contiguous(&dy.narrow(1, 0, 1)?)?;
                let rows = rows.reshape((samples, width))?;
                sink.add_owned(token_id, row_sum(&rows, form)?)?;
            }
            // For one sample this is a view of `dy`, which another value may hold as well.
            sink.add_shared(x_id, copies.contiguous(&dy.narrow(1, 1, tokens)?)?)
        }))
    }

    /// The first row of each sequence: [samples, tokens, width] to [samples, width].
    pub fn first_token(&self, x: &Value) -> Result<Value> {
        self.poll()?;
        let [samples, tokens, width] = axes("first_token", "x", x)?;
        let copies = self.copies();
        let y = copies.owned(&x.tensor().narrow(1, 0, 1)?)?;
        let y = y.reshape((samples, width))?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let id = x.id();
        Ok(self.push(y, &[], move |dy, sink| {
            // For one token this is `dy` itself.
            let dy = dy.reshape((samples, 1, width))?;
            sink.add_shared(id, copies.padded(&dy, 1, (0, tokens - 1))?)
        }))
    }

    /// The same elements with another shape.
    pub fn reshape(&self, x: &Value, shape: &[usize]) -> Result<Value> {
        self.poll()?;
        if x.tensor().elem_count() != shape.iter().product::<usize>() {
            let expected = format!("as many elements as {shape:?} has");
            return Err(misfit("reshape", "x", expected, x));
        }
        let y = x.tensor().contiguous()?.reshape(shape)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let (id, before) = (x.id(), x.tensor().shape().clone());
        Ok(self.push(y, &[], move |dy, sink| {
            sink.add_shared(id, dy.contiguous()?.reshape(before)?)
        }))
    }
}
