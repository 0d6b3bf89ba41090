//! Elementwise operations with a broadcast second operand: `x + p`, `x p`. The axes of `p` align
//! with the last axes of `x`. Each has the same size or 1; where it is 1 or missing, `p` repeats:
//! [width] for every row, [samples, 1, 1] for every sample.
//!
//! Backward of the sum: `dx = dy`; of the product: `dx = dy p`. `dp` is `dy` or `dy x`, summed over
//! the repeated axes in an order that the shapes determine. Saved: nothing for the sum; for
//! products `x` if `p` needs a gradient, and `p` if `x` does, unless it is cheap to recompute.

mod align_axes;

use super::{expect_filled, expect_shape};
use crate::cpu::{Float, View, map, map2, to_tensor, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::saved_input::held;
use crate::tape::{Tape, Value};
use align_axes::BroadcastPlan;
use candle_core::Tensor;

#[derive(Clone, Copy)]
enum Form {
    Sum,
    Product,
}

impl Tape<'_> {
    /// `x y` of equal shape, element by element.
    pub fn mul(&self, x: &Value, y: &Value) -> Result<Value> {
        expect_shape("mul", "the second operand", y, x.dims())?;
        self.broadcast("mul", x, y, Form::Product)
    }

    /// `x + p`, where `p` repeats over axes of size 1 and over missing axes. A wider `p` beside a
    /// half `x`, such as a bias, is rounded for the sum; its gradient is summed in its own type.
    pub fn broadcast_add(&self, x: &Value, p: &Value) -> Result<Value> {
        self.broadcast("broadcast_add", x, p, Form::Sum)
    }

    /// `x p`, where `p` repeats over axes of size 1 and over missing axes.
    pub fn broadcast_mul(&self, x: &Value, p: &Value) -> Result<Value> {
        self.broadcast("broadcast_mul", x, p, Form::Product)
    }

    fn broadcast(&self, op: &'static str, x: &Value, p: &Value, form: Form) -> Result<Value> {
        self.poll()?;
        expect_filled(op, "x", x)?;
        let spread = BroadcastPlan::new(op, x, p)?;
        let fused = self.fuses(x.tensor());
        let (xs, ps) = (contiguous(x.tensor())?, contiguous(p.tensor())?);
        let y = combine(&xs, &ps, &spread, form, fused)?;
        if !self.records(&[x, p]) {
            return Ok(Value::constant(y));
        }
        let (x_id, p_id) = (x.id(), p.id());
        let product = matches!(form, Form::Product);
        let saved_x = (product && p_id.is_some()).then(|| x.saved_input());
        let saved_p = (product && x_id.is_some()).then(|| p.saved_input());
        let (shape, p_type) = (ps.shape().clone(), ps.dtype());
        let saved = held([&saved_x, &saved_p]);
        Ok(
            self.push(y, &saved.iter().collect::<Vec<_>>(), move |dy, sink| {
                let dy = contiguous(&dy)?;
                if p_id.is_some() {
                    match &saved_x {
                        Some(x) => {
                            let dp = spread.reduce(&times(&dy, &x.get()?, fused)?, fused)?;
                            sink.add_owned(p_id, dp.reshape(shape)?)?;
                        }
                        // If nothing repeats, this is `dy` itself.
                        None => {
                            let dp = spread.reduce(&dy.to_dtype(p_type)?, fused)?;
                            sink.add_shared(p_id, dp.reshape(shape)?)?
                        }
                    }
                }
                match &saved_p {
                    Some(p) => sink.add_owned(x_id, combine(&dy, &p.get()?, &spread, form, fused)?),
                    None if product => Ok(()),
                    None => sink.add_shared(x_id, dy),
                }
            }),
        )
    }
}

/// `a b` of equal shape.
fn times(a: &Tensor, b: &Tensor, fused: bool) -> Result<Tensor> {
    if !fused {
        return Ok((a * b)?);
    }
    with_float!("broadcast", a, T => {
        let (x, y) = (View::<T>::new("broadcast", a)?, View::<T>::new("broadcast", b)?);
        to_tensor(map2(&x, &y, |x, y| x * y), a.dims())
    })
}

/// `x + p` or `x p`.
fn combine(
    x: &Tensor,
    p: &Tensor,
    spread: &BroadcastPlan,
    form: Form,
    fused: bool,
) -> Result<Tensor> {
    if !fused {
        return Ok(match form {
            Form::Sum => x.broadcast_add(&p.to_dtype(x.dtype())?)?,
            Form::Product => x.broadcast_mul(p)?,
        });
    }
    with_float!("broadcast", x, T => {
        let (xs, ps) = (View::<T>::new("broadcast", x)?, View::<T>::new("broadcast", p)?);
        let y = match form {
            Form::Sum => apply(&xs, &ps, spread, |x, p| x + p),
            Form::Product => apply(&xs, &ps, spread, |x, p| x * p),
        };
        to_tensor(y, x.dims())
    })
}

fn apply<T: Float>(
    x: &[T],
    p: &[T],
    spread: &BroadcastPlan,
    f: impl Fn(T, T) -> T + Sync + Copy,
) -> Vec<T> {
    if p.len() == x.len() {
        return map2(x, p, f);
    }
    match p {
        &[p] => map(x, |x| f(x, p)),
        _ => spread.apply(x, p, f),
    }
}
