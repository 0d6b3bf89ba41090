//! The gate of a feed-forward branch (Shazeer 2020): `y = a(g) u`, element by element, with the
//! activation `a`. Backward: `dg = dy u a'(g)`, `du = dy a(g)`, in one pass. Saved: `g` and `u`,
//! from which operations that need `y` recompute it.

use super::activation::{composed_slope as gelu_slope_composed, gelu_and_slope};
use super::sigmoid::{composed_sigmoid, sigmoid};
use super::{Form, expect_shape};
use crate::convert_dtype::{in_full, widened};
use crate::cpu::{Float, View, buffer, to_tensor, wide, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::kernels::{KernelGroup, elementwise};
use crate::saved_input::Recompute;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

pub use crate::kernels::elementwise::Gate;

const OP: &str = "gated";
/// Elements per task.
const CHUNK: usize = 1 << 14;

impl Gate {
    /// The activation and its derivative.
    #[inline(always)]
    fn and_slope<T: Float>(self, x: T) -> (T, T) {
        match self {
            Gate::Gelu => gelu_and_slope(x),
            Gate::Silu => {
                let s = sigmoid(x);
                (x * s, s * (T::one() + x * (T::one() - s)))
            }
        }
    }

    fn composed(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Gate::Gelu => Ok(x.gelu()?),
            Gate::Silu => Ok((x * composed_sigmoid(x)?)?),
        }
    }

    fn composed_slope(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Gate::Gelu => gelu_slope_composed(x),
            Gate::Silu => {
                let s = composed_sigmoid(x)?;
                let rise = ((x * (s.neg()? + 1.0)?)? + 1.0)?;
                Ok((s * rise)?)
            }
        }
    }
}

impl Tape<'_> {
    /// `activation(gate) * up`, both of the same shape.
    pub fn gated(&self, gate: &Value, up: &Value, activation: Gate) -> Result<Value> {
        self.poll()?;
        expect_shape(OP, "up", up, gate.dims())?;
        let form = self.form(KernelGroup::Gated, gate.tensor());
        let u = contiguous(up.tensor())?;
        let y = forward(&contiguous(gate.tensor())?, &u, activation, form)?;
        if !self.records(&[gate, up]) {
            return Ok(Value::constant(y));
        }
        let (gate_id, up_id, kept) = (gate.id(), up.id(), gate.saved_input());
        let again = {
            let u = u.clone();
            Recompute::new(kept.clone(), &[&u.clone()], move |gate| {
                forward(gate, &u, activation, form)
            })
        };
        let counted = kept.clone();
        let saved = [counted.counted(), vec![&u]].concat();
        let held = u.clone();
        let y = self.push(y, &saved, move |dy, sink| {
            let (dg, du) = backward(&kept.get()?, &held, &contiguous(&dy)?, activation, form)?;
            sink.add_owned(gate_id, dg)?;
            sink.add_owned(up_id, du)
        });
        Ok(y.with_recompute(again))
    }
}

fn forward(gate: &Tensor, up: &Tensor, activation: Gate, form: Form) -> Result<Tensor> {
    if form == Form::Device {
        return elementwise::gated(gate, up, activation);
    }
    if form == Form::Composed {
        return in_full([gate, up], |[gate, up]| {
            Ok((activation.composed(&gate)? * up)?)
        });
    }
    with_float!("gated", gate, T => {
        let (gs, us) = (View::<T>::new(OP, gate)?, View::<T>::new(OP, up)?);
        let mut y = buffer::<T>(gs.len());
        let chunks = y.par_chunks_mut(CHUNK).zip(gs.par_chunks(CHUNK)).zip(us.par_chunks(CHUNK));
        chunks.for_each(|((y, g), u)| {
            wide(#[inline(always)] || {
                let inputs = g.iter().zip(u);
                y.iter_mut().zip(inputs).for_each(|(y, (&g, &u))| *y = activation.and_slope(g).0 * u);
            });
        });
        to_tensor(y, gate.dims())
    })
}

/// The gradients of the gate and of `up`.
fn backward(
    gate: &Tensor,
    up: &Tensor,
    dy: &Tensor,
    activation: Gate,
    form: Form,
) -> Result<(Tensor, Tensor)> {
    if form == Form::Device {
        return elementwise::gated_backward(gate, up, dy, activation);
    }
    if form == Form::Composed {
        let (g, dy) = (widened(gate)?, widened(dy)?);
        let dg = ((&dy * widened(up)?)? * activation.composed_slope(&g)?)?;
        let du = (dy * activation.composed(&g)?)?;
        return Ok((dg.to_dtype(gate.dtype())?, du.to_dtype(up.dtype())?));
    }
    with_float!("gated", gate, T => {
        let (gs, us, dys) = (View::<T>::new(OP, gate)?, View::<T>::new(OP, up)?, View::<T>::new(OP, dy)?);
        let (mut dg, mut du) = (buffer::<T>(gs.len()), buffer::<T>(gs.len()));
        let outputs = dg.par_chunks_mut(CHUNK).zip(du.par_chunks_mut(CHUNK));
        let inputs = gs.par_chunks(CHUNK).zip(us.par_chunks(CHUNK)).zip(dys.par_chunks(CHUNK));
        outputs.zip(inputs).for_each(|((dg, du), ((g, u), dy))| {
            wide(#[inline(always)] || {
                for i in 0..g.len() {
                    let (value, slope) = activation.and_slope(g[i]);
                    dg[i] = dy[i] * u[i] * slope;
                    du[i] = dy[i] * value;
                }
            });
        });
        Ok((to_tensor(dg, gate.dims())?, to_tensor(du, gate.dims())?))
    })
}
