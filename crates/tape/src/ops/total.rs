//! The sum of all numbers, by sample: what turns any value into a term of a loss. Backward: every number gets the factor of
//! the sum. Nothing is saved.

use super::{Loss, expect_filled, one_axis_at_least};
use crate::error::Result;
use crate::tape::{Tape, Value};

impl Tape<'_> {
    /// The sum of `x` [samples, ..], and of each sample.
    pub fn total(&self, x: &Value) -> Result<Loss> {
        self.poll()?;
        one_axis_at_least("total", "x", x)?;
        expect_filled("total", "x", x)?;
        let flat = x.tensor().contiguous()?.reshape((x.dims()[0], ()))?;
        let per_sample = flat.sum(1)?;
        let total = per_sample.sum_all()?;
        if !self.records(&[x]) {
            let sum = Value::constant(total);
            return Ok(Loss { sum, per_sample });
        }
        let (id, shape) = (x.id(), x.tensor().shape().clone());
        let sum = self.push(total, &[], move |factor, sink| {
            sink.give(id, factor.broadcast_as(shape)?.force_contiguous()?)
        });
        Ok(Loss { sum, per_sample })
    }
}
