//! Activations. `relu(x) = max(x, 0)`; saved: its output, which the next operation saves anyway.
//! `gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))` (Hendrycks and Gimpel 2016); saved:
//! `x`, from which operations that need the output recompute it.

use super::Form;
use crate::convert_dtype::widened;
use crate::cpu::{Float, View, map, map2, to_tensor, with_float};
use crate::error::Result;
use crate::inplace::to_f64;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::kernels::elementwise::{Function, apply, apply_backward};
use crate::kink_log::{Kink, relu_way};
use crate::saved_input::Recompute;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

/// An activation after a norm, element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// `max(x, 0)`.
    Relu,
    /// The tanh form of the Gaussian error linear unit. It is smooth, so rounding errors stay
    /// small; at the kink of a ReLU they can grow from step to step.
    Gelu,
}

impl Tape<'_> {
    /// `activation` of `x`, element by element.
    pub fn activate(&self, x: &Value, activation: Activation) -> Result<Value> {
        match activation {
            Activation::None => Ok(x.clone()),
            Activation::Relu => self.relu(x),
            Activation::Gelu => self.gelu(x),
        }
    }

    /// `max(x, 0)`, element by element; the derivative at 0 is 0. NaN passes forward and backward.
    pub fn relu(&self, x: &Value) -> Result<Value> {
        self.poll()?;
        if let Some(ways) = self.recorded_ways(Kink::Relu, x.tensor().elem_count())? {
            return self.relu_with_kinks(x, ways);
        }
        let form = self.form(KernelGroup::Relu, x.tensor());
        let y = pointwise(
            x.tensor(),
            form,
            Function::Relu,
            composed_relu,
            // Written so that NaN passes: any comparison with it is false.
            |x: f64| if x < 0.0 { 0.0 } else { x },
            |x: f32| if x < 0.0 { 0.0 } else { x },
        )?;
        self.record_relu(&y)?;
        let kept = y.clone();
        self.unary(x, y, &[&kept.clone()], move |dy| {
            match form {
                Form::Composed => return composed_relu_slope(&kept, &dy),
                Form::Device => {
                    return apply_backward(Function::Relu, &kept, &contiguous(&dy)?);
                }
                Form::Cpu => {}
            }
            with_float!("relu", kept, T => {
                let dy = contiguous(&dy)?;
                let (y, dy) = (View::<T>::new("relu", &kept)?, View::<T>::new("relu", &dy)?);
                let zero = T::from_constant(0.0);
                to_tensor(map2(&y, &dy, |y, dy| if y <= zero { zero } else { dy }), kept.dims())
            })
        })
    }

    /// ReLU with the sides of the followed run: `x` where its value passed, otherwise 0.
    fn relu_with_kinks(&self, x: &Value, ways: Vec<u8>) -> Result<Value> {
        let xs = to_f64(x.tensor())?;
        let others = xs.iter().zip(&ways);
        let others = others.filter(|&(&x, &recorded)| relu_way(x) != recorded);
        self.count_divergence(ways.len(), &xs, others.map(|(x, _)| x.abs()));
        let rises = Tensor::from_vec(ways, x.dims(), x.tensor().device())?;
        let y = rises.where_cond(x.tensor(), &x.tensor().zeros_like()?)?;
        let kept = rises.clone();
        self.unary(x, y, &[&rises], move |dy| {
            Ok(kept.where_cond(&dy, &dy.zeros_like()?)?)
        })
    }

    /// The tanh form of the Gaussian error linear unit, element by element.
    pub fn gelu(&self, x: &Value) -> Result<Value> {
        self.poll()?;
        let form = self.form(KernelGroup::Gelu, x.tensor());
        let y = forward_gelu(x.tensor(), form)?;
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let (id, kept) = (x.id(), x.saved_input());
        let again = Recompute::new(kept.clone(), &[], move |x| forward_gelu(x, form));
        let counted = kept.clone();
        let y = self.push(y, &counted.counted(), move |dy, sink| {
            let x = kept.get()?;
            if form == Form::Device {
                let dx = apply_backward(Function::Gelu, &x, &contiguous(&dy)?)?;
                return sink.add_owned(id, dx);
            }
            if form == Form::Composed {
                let dx = (widened(&dy)? * composed_slope(&widened(&x)?)?)?;
                return sink.add_owned(id, dx.to_dtype(x.dtype())?);
            }
            let dx = with_float!("gelu", x, T => {
                let dy = contiguous(&dy)?;
                let (xs, dy) = (View::<T>::new("gelu", &x)?, View::<T>::new("gelu", &dy)?);
                to_tensor(map2(&xs, &dy, |x, dy| dy * gelu_slope(x)), x.dims())
            })?;
            sink.add_owned(id, dx)
        });
        Ok(y.with_recompute(again))
    }
}

/// `max(x, 0)`, by a comparison that is false for NaN: candle's own function turns NaN into 0.
pub(super) fn composed_relu(x: &Tensor) -> Result<Tensor> {
    let zeros = x.zeros_like()?;
    Ok(x.lt(&zeros)?.where_cond(&zeros, x)?)
}

/// `dy` where `max(x, 0)` passes its input, otherwise 0. `x` may be the input or the output.
pub(super) fn composed_relu_slope(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let zeros = dy.zeros_like()?;
    Ok(x.le(&x.zeros_like()?)?.where_cond(&zeros, dy)?)
}

fn forward_gelu(x: &Tensor, form: Form) -> Result<Tensor> {
    pointwise(x, form, Function::Gelu, |t| Ok(t.gelu()?), gelu, gelu)
}

fn pointwise(
    x: &Tensor,
    form: Form,
    function: Function,
    composed: impl Fn(&Tensor) -> Result<Tensor>,
    double: impl Fn(f64) -> f64 + Sync,
    single: impl Fn(f32) -> f32 + Sync,
) -> Result<Tensor> {
    if form == Form::Composed {
        return Ok(composed(&widened(x)?)?.to_dtype(x.dtype())?);
    }
    let x = contiguous(x)?;
    if form == Form::Device {
        return apply(function, &x);
    }
    match x.dtype() {
        candle_core::DType::F64 => {
            to_tensor(map(&View::<f64>::new("activation", &x)?, double), x.dims())
        }
        _ => to_tensor(map(&View::<f32>::new("activation", &x)?, single), x.dims()),
    }
}

/// `sqrt(2 / pi)`.
const ROOT: f64 = 0.797_884_560_802_865_4;
/// The factor of the cubic term.
const CUBIC: f64 = 0.044_715;

#[inline(always)]
pub(super) fn gelu<T: Float>(x: T) -> T {
    let half = T::from_constant(0.5);
    half * x
        * (T::one()
            + (T::from_constant(ROOT) * (x + T::from_constant(CUBIC) * x * x * x))
                .hyperbolic_tangent())
}

/// Derivative of [`gelu`].
#[inline(always)]
pub(super) fn gelu_slope<T: Float>(x: T) -> T {
    gelu_and_slope(x).1
}

/// [`gelu`] and its derivative, with one tanh for both.
#[inline(always)]
pub(super) fn gelu_and_slope<T: Float>(x: T) -> (T, T) {
    let half = T::from_constant(0.5);
    let t =
        (T::from_constant(ROOT) * (x + T::from_constant(CUBIC) * x * x * x)).hyperbolic_tangent();
    let slope = half * (T::one() + t)
        + half
            * x
            * (T::one() - t * t)
            * T::from_constant(ROOT)
            * (T::one() + T::from_constant(3.0 * CUBIC) * x * x);
    (half * x * (T::one() + t), slope)
}

pub(super) fn composed_slope(x: &Tensor) -> Result<Tensor> {
    let square = x.sqr()?;
    let t = ((x * ((&square * CUBIC)? + 1.0)?)? * ROOT)?.tanh()?;
    let rise = ((t.sqr()?.neg()? + 1.0)? * ((square * (3.0 * CUBIC))? + 1.0)?)?;
    Ok((((t + 1.0)? + (rise * (x * ROOT)?)?)? * 0.5)?)
}
