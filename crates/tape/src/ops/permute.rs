//! Reordering of axes. The backward pass applies the inverse order. Nothing is saved.

use super::misfit;
use crate::error::Result;
use crate::tape::{Tape, Value};

impl Tape<'_> {
    /// Axis `i` of the result is axis `order[i]` of `x`: `[0, 2, 1]` transposes matrices.
    pub fn permute(&self, x: &Value, order: &[usize]) -> Result<Value> {
        self.poll()?;
        let mut back = vec![usize::MAX; order.len()];
        for (to, &from) in order
            .iter()
            .enumerate()
            .filter(|(_, from)| **from < order.len())
        {
            back[from] = to;
        }
        if order.len() != x.dims().len() || back.contains(&usize::MAX) {
            let expected = format!("as many axes as the order {order:?} has");
            return Err(misfit("permute", "x", expected, x));
        }
        let copies = self.copies();
        let y = copies.contiguous(&x.tensor().permute(order)?)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let id = x.id();
        // If only axes of size 1 move, the gradient is a view of `dy`.
        Ok(self.push(y, &[], move |dy, sink| {
            sink.add_shared(id, copies.contiguous(&dy.permute(back)?)?)
        }))
    }
}
