//! Layers: the ids of their parameters, and the operation that uses them. Shape errors name the
//! parameter.

use crate::error::naming;
use crate::lora::{Adapter, BaseMap, BaseWeight};
use crate::parameter_builder::ParameterBuilder;
use std::sync::Arc;
use tape::{Activation, Affine, Conv2dShape, DeferredOutput, ParameterId, Result, Tape, Value};

/// `x Wᵀ + b`. A frozen `W` may be quantized, and an adapter may be added.
#[derive(Debug, Clone)]
pub struct Linear {
    name: Arc<str>,
    weight: ParameterId,
    bias: ParameterId,
    adapter: Option<Adapter>,
}

impl Linear {
    /// Maps `inputs` to `outputs`. Weights start with standard deviation `deviation`, biases at 0.
    pub fn build(
        b: &mut ParameterBuilder,
        name: &str,
        inputs: usize,
        outputs: usize,
        deviation: f64,
    ) -> Result<Self> {
        b.within(name, |b| {
            Ok(Linear {
                name: b.prefix(),
                weight: b.normal("weight", &[outputs, inputs], deviation)?,
                bias: b.constant("bias", &[outputs], 0.0)?,
                adapter: Adapter::for_map(b, outputs, inputs)?,
            })
        })
    }

    /// Maps [.., inputs] to [.., outputs].
    pub fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let bias = tape.parameter(self.bias);
        self.map().forward(tape, x, Some(&bias))
    }

    /// Like [`Linear::forward`], added to `residual` [.., outputs].
    pub fn forward_add(&self, tape: &Tape, x: &Value, residual: &Value) -> Result<Value> {
        if !self.is_plain(tape) {
            return tape.add(&self.forward(tape, x)?, residual);
        }
        let (weight, bias) = self.values(tape);
        naming(&self.name, tape.linear_add(x, &weight, &bias, residual))
    }

    /// The product `x Wᵀ`, and the bias that the caller has to add.
    pub(crate) fn without_bias(&self, tape: &Tape, x: &Value) -> Result<(Value, Value)> {
        if !self.is_plain(tape) {
            let y = self.map().forward(tape, x, None)?;
            return Ok((y, tape.parameter(self.bias)));
        }
        let (weight, bias) = self.values(tape);
        // A bias that does not fit is passed on, so that the error contains its name.
        let misshaped = (bias.dims() != &weight.dims()[..1]).then_some(&bias);
        let y = naming(&self.name, tape.linear(x, &weight, misshaped))?;
        Ok((y, bias))
    }

    /// Whether the weight is in floating point and has no adapter. Fused operations need that.
    pub(crate) fn is_plain(&self, tape: &Tape) -> bool {
        self.adapter.is_none() && tape.quantized(self.weight).is_none()
    }

    fn map(&self) -> LinearMap<'_> {
        LinearMap {
            name: &self.name,
            weight: self.weight,
            adapter: self.adapter.as_ref(),
        }
    }

    /// Weight and bias.
    pub(crate) fn values(&self, tape: &Tape) -> (Value, Value) {
        (tape.parameter(self.weight), tape.parameter(self.bias))
    }

    /// Name prefix of its parameters.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// A weight, quantized or not, with its adapter.
pub(crate) struct LinearMap<'a> {
    /// Name used in shape errors.
    pub name: &'a str,
    /// [outputs, inputs].
    pub weight: ParameterId,
    pub adapter: Option<&'a Adapter>,
}

impl LinearMap<'_> {
    /// Maps [.., inputs] to [.., outputs].
    pub fn forward(&self, tape: &Tape, x: &Value, bias: Option<&Value>) -> Result<Value> {
        let base = BaseMap {
            weight: BaseWeight::from_parameter(tape, self.weight),
            bias,
        };
        match self.adapter {
            Some(adapter) => adapter.forward(tape, self.name, x, &base),
            None => naming(self.name, base.forward(tape, x)),
        }
    }
}

/// Layer norm over the last axis.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    name: Arc<str>,
    weight: ParameterId,
    bias: ParameterId,
    epsilon: f64,
}

impl LayerNorm {
    /// Normalizes rows of `width`. Weights start at 1, biases at 0.
    pub fn build(b: &mut ParameterBuilder, name: &str, width: usize, epsilon: f64) -> Result<Self> {
        b.within(name, |b| {
            Ok(LayerNorm {
                name: b.prefix(),
                weight: b.constant("weight", &[width], 1.0)?,
                bias: b.constant("bias", &[width], 0.0)?,
                epsilon,
            })
        })
    }

    /// Normalizes the last axis of `x` [.., width].
    pub fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let (weight, bias) = (tape.parameter(self.weight), tape.parameter(self.bias));
        naming(&self.name, tape.layer_norm(x, &weight, &bias, self.epsilon))
    }
}

/// Group norm over channels (Wu and He 2018).
#[derive(Debug, Clone)]
pub struct GroupNorm {
    name: Arc<str>,
    weight: ParameterId,
    bias: ParameterId,
    groups: usize,
}

/// Added to the variance by [`GroupNorm`].
pub(crate) const GROUP_EPSILON: f64 = 1e-5;

impl GroupNorm {
    /// Normalizes `channels` in `groups`. Weights start at 1, biases at 0.
    pub fn build(
        b: &mut ParameterBuilder,
        name: &str,
        channels: usize,
        groups: usize,
    ) -> Result<Self> {
        b.within(name, |b| {
            Ok(GroupNorm {
                name: b.prefix(),
                weight: b.constant("weight", &[channels], 1.0)?,
                bias: b.constant("bias", &[channels], 0.0)?,
                groups,
            })
        })
    }

    /// Normalizes `x` [samples, channels, height, width] and applies `activation`.
    pub fn forward(&self, tape: &Tape, x: &Value, activation: Activation) -> Result<Value> {
        let (weight, bias) = (tape.parameter(self.weight), tape.parameter(self.bias));
        let affine = Affine {
            weight: &weight,
            bias: &bias,
        };
        naming(
            &self.name,
            tape.group_norm(x, self.groups, affine, GROUP_EPSILON, activation),
        )
    }
}

/// Sizes of a [`Conv`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvSize {
    /// Input channels.
    pub inputs: usize,
    /// Output channels.
    pub outputs: usize,
    /// Side of the square kernel.
    pub kernel: usize,
    /// Stride in both directions.
    pub stride: usize,
}

/// Convolution without a bias.
#[derive(Debug, Clone)]
pub struct Conv {
    name: Arc<str>,
    weight: ParameterId,
    shape: Conv2dShape,
}

impl Conv {
    /// Builds a convolution that is padded so that stride 1 keeps the size. Weights start as in He
    /// et al. 2015.
    ///
    /// # Errors
    /// The device cannot allocate the weight.
    pub fn build(b: &mut ParameterBuilder, name: &str, size: ConvSize) -> Result<Self> {
        let ConvSize {
            inputs,
            outputs,
            kernel,
            stride,
        } = size;
        let deviation = (2.0 / (outputs * kernel * kernel) as f64).sqrt();
        b.within(name, |b| {
            Ok(Conv {
                name: b.prefix(),
                weight: b.normal("weight", &[outputs, inputs, kernel, kernel], deviation)?,
                shape: Conv2dShape {
                    stride,
                    padding: kernel / 2,
                    groups: 1,
                },
            })
        })
    }

    /// Maps [samples, inputs, height, width] to [samples, outputs, ..].
    pub fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        self.deferred(tape, x)?.finish(tape)
    }

    /// Like [`Conv::forward`], but the convolution is left to the caller.
    pub(crate) fn deferred(&self, tape: &Tape, x: &Value) -> Result<DeferredOutput> {
        let ending = DeferredOutput::Conv2d(x.clone(), tape.parameter(self.weight), self.shape);
        naming(&self.name, ending.checked())
    }
}
