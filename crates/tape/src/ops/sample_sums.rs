//! The sum of all values per sample, which turns any value into a loss term. Backward: every
//! element gets the factor of the sum. Half types are accumulated in f32. Nothing is saved.

use super::{Loss, expect_an_axis, expect_filled};
use crate::convert_dtype::widened;
use crate::error::Result;
use crate::kernels::copies::{contiguous, owned};
use crate::tape::{Tape, Value};

impl Tape<'_> {
    /// The sum of `x` [samples, ..], in total and per sample.
    pub fn total(&self, x: &Value) -> Result<Loss> {
        self.poll()?;
        expect_an_axis("total", "x", x)?;
        expect_filled("total", "x", x)?;
        let flat = contiguous(&widened(x.tensor())?)?.reshape((x.dims()[0], ()))?;
        let per_sample = flat.sum(1)?;
        let total = per_sample.sum_all()?;
        if !self.records(&[x]) {
            let sum = Value::constant(total);
            return Ok(Loss { sum, per_sample });
        }
        let (id, shape, dtype) = (x.id(), x.tensor().shape().clone(), x.tensor().dtype());
        let sum = self.push(total, &[], move |factor, sink| {
            let dx = factor.to_dtype(dtype)?.broadcast_as(shape)?;
            sink.add_owned(id, owned(&dx)?)
        });
        Ok(Loss { sum, per_sample })
    }
}
