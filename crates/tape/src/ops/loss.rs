//! What every loss gives: a sum over the piece and a gradient that forward has computed already. Never a mean: the effective
//! batch divides once, by weights that each loss counts from its targets alone.

use crate::error::Result;
use crate::inplace::to_f64;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

/// A loss of one piece, not yet divided by anything.
pub struct Loss {
    /// Sum over the piece's samples, a scalar.
    pub sum: Value,
    /// Each sample's loss, [samples].
    pub per_sample: Tensor,
}

/// Records a loss whose gradient `dx` is record_loss, for a sum of factor 1.
pub(super) fn record_loss(tape: &Tape, x: &Value, per_sample: Tensor, dx: Tensor) -> Result<Loss> {
    let total = per_sample.sum_all()?;
    if !tape.records(&[x]) {
        let sum = Value::constant(total);
        return Ok(Loss { sum, per_sample });
    }
    let (id, dtype) = (x.id(), x.tensor().dtype());
    let sum = tape.push(total, &[&dx.clone()], move |factor, sink| {
        // A scalar read back: one GPU sync a loss term.
        let factor = to_f64(&factor)?[0];
        let dx = if factor == 1.0 { dx } else { (dx * factor)? };
        sink.add_owned(id, dx.to_dtype(dtype)?)
    });
    Ok(Loss { sum, per_sample })
}
