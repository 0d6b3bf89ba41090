//! `prepend_token` puts one row before each sequence, `first_token` takes it out again. Nothing is
//! saved.

use super::linear::row_sum;
use super::{axes, expect_shape};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::tape::{Tape, Value};

impl Tape<'_> {
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
}
