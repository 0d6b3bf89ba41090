//! Group norm (Wu and He 2018): the channels of each sample are normalized in groups, then scaled
//! and shifted per channel, and passed through an optional activation. Samples do not affect each
//! other, so a split cannot change the result.
//!
//! `n = (x - mean) r`, `z = n w + b`, `y = f(z)`. Backward with `dz = dy f'(z)`, `g = dz w`: `dx =
//! r (g - mean(g) - n mean(g n))` over the group, `dw = sum dz n`, `db = sum dz`. Saved: `x`, and
//! the mean and `r` of each group, from which operations that need `y` recompute it.

mod composed;
mod cpu;

use super::{Activation, Form, axes, expect_shape, misfit};
use crate::cpu::with_float;
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::kernels::feature_maps;
use crate::saved_input::Recompute;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

/// Sizes of one call: channels, pixels per channel, groups; and the epsilon of the variance.
#[derive(Clone, Copy)]
struct Sizes {
    channels: usize,
    pixels: usize,
    groups: usize,
    epsilon: f64,
}

impl Sizes {
    fn new(x: &Value, groups: usize, epsilon: f64) -> Result<Self> {
        let [_, channels, height, width] = axes("group_norm", "x", x)?;
        if groups == 0 || channels % groups != 0 {
            let expected = format!("a number of channels that is a multiple of {groups}");
            return Err(misfit("group_norm", "x", expected, x));
        }
        Ok(Sizes {
            channels,
            pixels: height * width,
            groups,
            epsilon,
        })
    }

    fn channels_a_group(self) -> usize {
        self.channels / self.groups
    }

    fn sample(self) -> usize {
        self.channels * self.pixels
    }
}

/// Scale and shift of a norm, one of each per channel.
#[derive(Clone, Copy)]
pub struct Affine<'a> {
    /// Factors, [channels].
    pub weight: &'a Value,
    /// Summands, [channels].
    pub bias: &'a Value,
}

impl<'a> From<(&'a Value, &'a Value)> for Affine<'a> {
    fn from(weight_and_bias: (&'a Value, &'a Value)) -> Self {
        Affine {
            weight: weight_and_bias.0,
            bias: weight_and_bias.1,
        }
    }
}

/// The parameters of a norm, and the form that runs.
#[derive(Clone)]
struct Norm {
    sizes: Sizes,
    weight: Tensor,
    bias: Tensor,
    activation: Activation,
    form: Form,
}

/// `dx`, `dw` and `db`.
type Slopes = (Tensor, Tensor, Tensor);

impl Tape<'_> {
    /// Normalizes `x` [samples, channels, height, width] in `groups`, scales and shifts it by
    /// `affine`, and applies `activation`.
    pub fn group_norm<'a>(
        &self,
        x: &Value,
        groups: usize,
        affine: impl Into<Affine<'a>>,
        epsilon: f64,
        activation: Activation,
    ) -> Result<Value> {
        self.poll()?;
        let Affine { weight, bias } = affine.into();
        let sizes = Sizes::new(x, groups, epsilon)?;
        expect_shape("group_norm", "weight", weight, &[sizes.channels])?;
        expect_shape("group_norm", "bias", bias, &[sizes.channels])?;
        if activation == Activation::Relu && self.follows_kinks() {
            let affine = Affine { weight, bias };
            let z = self.group_norm(x, groups, affine, epsilon, Activation::None)?;
            return self.relu(&z);
        }
        let norm = Norm {
            sizes,
            weight: weight.tensor().clone(),
            bias: bias.tensor().clone(),
            activation,
            form: self.form(KernelGroup::GroupNorm, x.tensor()),
        };
        let input = contiguous(x.tensor())?;
        let moments = norm.moments(&input)?;
        let y = norm.forward(&input, &moments)?;
        if activation == Activation::Relu {
            self.record_relu(&y)?;
        }
        if !self.records(&[x, weight, bias]) {
            return Ok(Value::constant(y));
        }
        let (x_id, w_id, b_id) = (x.id(), weight.id(), bias.id());
        let kept = x.saved_input();
        let again = {
            let (norm, moments) = (norm.clone(), moments.clone());
            let reads = [&weight.tensor().clone(), bias.tensor(), &moments.clone()];
            Recompute::new(kept.clone(), &reads, move |x| norm.forward(x, &moments))
        };
        let counted = (kept.clone(), moments.clone());
        let counted = [counted.0.counted(), vec![&counted.1]].concat();
        let y = self.push(y, &counted, move |dy, sink| {
            let (dx, dw, db) = norm.backward(&kept.get()?, &moments, &contiguous(&dy)?)?;
            sink.add_owned(x_id, dx)?;
            sink.add_owned(w_id, dw)?;
            sink.add_owned(b_id, db)
        });
        Ok(y.with_recompute(again))
    }
}

impl Norm {
    /// The sizes in the form that GPU kernels take.
    fn groups(&self) -> feature_maps::Groups {
        feature_maps::Groups {
            channels: self.sizes.channels,
            pixels: self.sizes.pixels,
            each: self.sizes.channels_a_group(),
            function: match self.activation {
                Activation::None => 0,
                Activation::Relu => 1,
                Activation::Gelu => 2,
            },
        }
    }

    /// The mean and `r` of each group, [samples, groups, 2].
    fn moments(&self, x: &Tensor) -> Result<Tensor> {
        match self.form {
            Form::Device => {
                return feature_maps::group_moments(x, self.groups(), self.sizes.epsilon);
            }
            Form::Composed => return composed::moments(x, self.sizes),
            Form::Cpu => {}
        }
        with_float!("group_norm", x, T => cpu::moments::<T>(x, self.sizes))
    }

    fn forward(&self, x: &Tensor, moments: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (&self.weight, &self.bias);
        match self.form {
            Form::Device => {
                return feature_maps::group_norm(x, moments, weight, bias, self.groups());
            }
            Form::Composed => return composed::forward(self, x, moments),
            Form::Cpu => {}
        }
        with_float!("group_norm", x, T => cpu::forward::<T>(self, x, moments))
    }

    fn backward(&self, x: &Tensor, moments: &Tensor, dy: &Tensor) -> Result<Slopes> {
        let (weight, bias) = (&self.weight, &self.bias);
        match self.form {
            Form::Device => {
                return feature_maps::group_norm_backward(
                    x,
                    moments,
                    weight,
                    bias,
                    dy,
                    self.groups(),
                );
            }
            Form::Composed => return composed::backward(self, x, moments, dy),
            Form::Cpu => {}
        }
        with_float!("group_norm", x, T => cpu::backward::<T>(self, x, moments, dy))
    }
}
