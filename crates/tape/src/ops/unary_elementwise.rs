//! Functions of one number: forward and backward element by element, saving what the derivative
//! needs.

use super::Form;
use crate::convert_dtype::in_full;
use crate::cpu::{Float, View, map, map2, to_tensor, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::kernels::elementwise::{Function, apply, apply_backward};
use crate::saved_input::{Recompute, SavedInput};
use crate::tape::{Tape, Value};
use candle_core::Tensor;

/// The tensor that the derivative is computed from, which is saved.
pub(super) enum Keeps {
    /// `x`.
    Input,
    /// `y`, which the next operation may save anyway.
    Output,
}

/// A function of one number and its derivative, as the body of a loop and composed of tensor
/// primitives.
pub(super) trait Pointwise: 'static {
    const OP: &'static str;
    const KEEPS: Keeps;
    /// Its GPU kernel.
    const KERNEL: Option<Function> = None;
    fn value<T: Float>(x: T) -> T;
    fn slope<T: Float>(kept: T) -> T;
    fn composed(x: &Tensor) -> Result<Tensor>;
    fn composed_slope(kept: &Tensor) -> Result<Tensor>;
}

impl Tape<'_> {
    /// Applies `F` to every element of `x`.
    pub(super) fn pointwise<F: Pointwise>(&self, x: &Value) -> Result<Value> {
        self.poll()?;
        let form = match F::KERNEL {
            Some(function) => self.form(function.group(), x.tensor()),
            None if self.fuses(x.tensor()) => Form::Cpu,
            None => Form::Composed,
        };
        let y = forward::<F>(x.tensor(), form)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let id = x.id();
        let kept = match F::KEEPS {
            Keeps::Input => x.saved_input(),
            Keeps::Output => SavedInput::Tensor(y.clone()),
        };
        let counted = kept.clone();
        let y = self.push(y, &counted.counted(), move |dy, sink| {
            sink.add_owned(id, backward::<F>(&kept.get()?, &dy, form)?)
        });
        Ok(match F::KEEPS {
            // Operations that need the output recompute it from the saved input.
            Keeps::Input => {
                y.with_recompute(Recompute::new(counted, &[], move |x| forward::<F>(x, form)))
            }
            Keeps::Output => y,
        })
    }
}

fn forward<F: Pointwise>(x: &Tensor, form: Form) -> Result<Tensor> {
    let x = contiguous(x)?;
    if let (Form::Device, Some(function)) = (form, F::KERNEL) {
        return apply(function, &x);
    }
    if form != Form::Cpu {
        return in_full([&x], |[x]| F::composed(&x));
    }
    with_float!("pointwise", x, T => {
        let xs = View::<T>::new(F::OP, &x)?;
        to_tensor(map(&xs, F::value::<T>), x.dims())
    })
}

fn backward<F: Pointwise>(kept: &Tensor, dy: &Tensor, form: Form) -> Result<Tensor> {
    if let (Form::Device, Some(function)) = (form, F::KERNEL) {
        return apply_backward(function, kept, &contiguous(dy)?);
    }
    if form != Form::Cpu {
        return in_full([dy, kept], |[dy, kept]| {
            Ok((dy * F::composed_slope(&kept)?)?)
        });
    }
    with_float!("pointwise", kept, T => {
        let dy = contiguous(dy)?;
        let (k, dy) = (View::<T>::new(F::OP, kept)?, View::<T>::new(F::OP, &dy)?);
        to_tensor(map2(&k, &dy, |k, dy| dy * F::slope(k)), kept.dims())
    })
}
