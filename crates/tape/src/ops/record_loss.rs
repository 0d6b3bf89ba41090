//! The common form of losses: a sum over the micro-batch, and a gradient that the forward pass has
//! computed. Never a mean: the effective batch divides once, by weights that each loss counts from
//! its targets alone.

use crate::error::Result;
use crate::gradients::Gradients;
use crate::inplace::to_f64;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

/// The loss of one micro-batch, not yet divided.
pub struct Loss {
    /// The sum over the samples, a scalar.
    pub sum: Value,
    /// The loss of each sample, [samples].
    pub per_sample: Tensor,
}

/// Records a loss whose gradient `dx` of the sum is known.
pub(super) fn record_loss(tape: &Tape, x: &Value, per_sample: Tensor, dx: Tensor) -> Result<Loss> {
    let total = per_sample.sum_all()?;
    if !tape.records(&[x]) {
        let sum = Value::constant(total);
        return Ok(Loss { sum, per_sample });
    }
    let (id, dtype) = (x.id(), x.tensor().dtype());
    let sum = tape.push(total, &[&dx.clone()], move |factor, sink| {
        let factor = factor_of(&factor, sink)?;
        let dx = if factor == 1.0 { dx } else { (dx * factor)? };
        sink.add_owned(id, dx.to_dtype(dtype)?)
    });
    Ok(Loss { sum, per_sample })
}

/// The gradient of the sum of a loss, a scalar. The host knows it if the sum is only a root of the
/// backward pass. Otherwise this reads it, which waits for the device.
pub(super) fn factor_of(gradient: &Tensor, sink: &Gradients) -> Result<f64> {
    match sink.current_constant() {
        Some(factor) => Ok(factor),
        None => Ok(to_f64(gradient)?[0]),
    }
}
