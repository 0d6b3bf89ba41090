//! Moving numbers about: `concat` joins along the first axis, `prepend_token` puts one row before each sequence,
//! `first_token` takes it out again, `reshape` renames the axes. Nothing is saved.

use super::expect_shape;
use super::linear::row_sum;
use crate::error::Result;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

impl Tape<'_> {
    /// Joins values along the first axis.
    pub fn concat(&self, parts: &[&Value]) -> Result<Value> {
        self.poll()?;
        let tensors: Vec<&Tensor> = parts.iter().map(|v| v.tensor()).collect();
        let joined = Tensor::cat(&tensors, 0)?;
        if !self.records(parts) {
            return Ok(Value::constant(joined));
        }
        let spans: Vec<_> = parts.iter().map(|v| (v.id(), v.dims()[0])).collect();
        Ok(self.push(joined, &[], move |dy, sink| {
            let mut start = 0;
            for (id, len) in spans {
                sink.share(id, dy.narrow(0, start, len)?.contiguous()?)?;
                start += len;
            }
            Ok(())
        }))
    }

    /// Puts `token` [width] before each sequence of `x` [samples, tokens, width].
    pub fn prepend_token(&self, token: &Value, x: &Value) -> Result<Value> {
        self.poll()?;
        let (samples, tokens, width) = x.tensor().dims3()?;
        expect_shape("prepend_token", "token", token, &[width])?;
        let row = token
            .tensor()
            .reshape((1, 1, width))?
            .expand((samples, 1, width))?;
        let y = Tensor::cat(&[&row.contiguous()?, x.tensor()], 1)?;
        if !self.records(&[token, x]) {
            return Ok(Value::constant(y));
        }
        let (token_id, x_id, fused) = (token.id(), x.id(), self.fuses(x.tensor()));
        Ok(self.push(y, &[], move |dy, sink| {
            if token_id.is_some() {
                let rows = dy
                    .narrow(1, 0, 1)?
                    .contiguous()?
                    .reshape((samples, width))?;
                sink.give(token_id, row_sum(&rows, fused)?)?;
            }
            sink.give(x_id, dy.narrow(1, 1, tokens)?.contiguous()?)
        }))
    }

    /// The first row of each sequence: [samples, tokens, width] to [samples, width].
    pub fn first_token(&self, x: &Value) -> Result<Value> {
        self.poll()?;
        let (samples, tokens, width) = x.tensor().dims3()?;
        let y = x
            .tensor()
            .narrow(1, 0, 1)?
            .contiguous()?
            .reshape((samples, width))?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let id = x.id();
        Ok(self.push(y, &[], move |dy, sink| {
            sink.give(
                id,
                dy.reshape((samples, 1, width))?
                    .pad_with_zeros(1, 0, tokens - 1)?,
            )
        }))
    }

    /// The same numbers under other axes.
    pub fn reshape(&self, x: &Value, shape: &[usize]) -> Result<Value> {
        self.poll()?;
        let y = x.tensor().contiguous()?.reshape(shape)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let (id, before) = (x.id(), x.tensor().shape().clone());
        Ok(self.push(y, &[], move |dy, sink| {
            sink.share(id, dy.contiguous()?.reshape(before)?)
        }))
    }
}
