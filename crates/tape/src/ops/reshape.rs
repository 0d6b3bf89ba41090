//! Values with another shape. Nothing is saved.

use super::misfit;
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::tape::{Tape, Value};

impl Tape<'_> {
    /// The same elements with another shape.
    pub fn reshape(&self, x: &Value, shape: &[usize]) -> Result<Value> {
        self.poll()?;
        if x.tensor().elem_count() != shape.iter().product::<usize>() {
            let expected = format!("as many elements as {shape:?} has");
            return Err(misfit("reshape", "x", expected, x));
        }
        let y = contiguous(x.tensor())?.reshape(shape)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let (id, before) = (x.id(), x.tensor().shape().clone());
        Ok(self.push(y, &[], move |dy, sink| {
            sink.add_shared(id, contiguous(&dy)?.reshape(before)?)
        }))
    }
}
