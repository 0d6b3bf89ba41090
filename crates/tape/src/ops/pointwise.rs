//! What functions of one number share: forward and backward element by element, with the one number that the derivative
//! needs kept. Refuses to know which function it is.

use crate::cpu::{Float, View, map, map2, tensor_of, with_float};
use crate::error::Result;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

/// From which number the derivative is computed, and so which tensor is kept.
pub(super) enum Keeps {
    /// `x`.
    Input,
    /// `y`, which the next operation may keep anyway.
    Output,
}

/// A function of one number and its derivative, each as a loop's body and composed of tensor primitives.
pub(super) trait Pointwise: 'static {
    const OP: &'static str;
    const KEEPS: Keeps;
    fn value<T: Float>(x: T) -> T;
    fn slope<T: Float>(kept: T) -> T;
    fn composed(x: &Tensor) -> Result<Tensor>;
    fn composed_slope(kept: &Tensor) -> Result<Tensor>;
}

impl Tape<'_> {
    /// `F` of every number of `x`.
    pub(super) fn pointwise<F: Pointwise>(&self, x: &Value) -> Result<Value> {
        self.poll()?;
        let fused = self.fuses(x.tensor());
        let input = x.tensor().contiguous()?;
        let y = if fused {
            with_float!("pointwise", input, T => {
                let xs = View::<T>::of(F::OP, &input)?;
                tensor_of(map(&xs, F::value::<T>), input.dims())
            })?
        } else {
            F::composed(&input)?
        };
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let id = x.id();
        let kept = match F::KEEPS {
            Keeps::Input => input,
            Keeps::Output => y.clone(),
        };
        Ok(self.push(y, &[&kept.clone()], move |dy, sink| {
            let dx = if fused {
                with_float!("pointwise", kept, T => {
                    let dy = dy.contiguous()?;
                    let (k, dy) = (View::<T>::of(F::OP, &kept)?, View::<T>::of(F::OP, &dy)?);
                    tensor_of(map2(&k, &dy, |k, dy| dy * F::slope(k)), kept.dims())
                })?
            } else {
                (dy * F::composed_slope(&kept)?)?
            };
            sink.give(id, dx)
        }))
    }
}
