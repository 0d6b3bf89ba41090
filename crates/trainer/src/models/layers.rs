//! Layers: positions of their parameters, the operation that uses them, and the name that its refusals are told by.

use super::adapter::Adapter;
use super::{Builder, ResNetNorm};
use std::sync::Arc;
use tape::{Activation, Conv2dShape, DeferredOutput, ParameterId, Result, Tape, TapeError, Value};

/// The outcome of an operation; where shapes do not go together the refusal says whose: `weight (blocks.0.up)`.
pub(super) fn of<T>(name: &str, outcome: Result<T>) -> Result<T> {
    outcome.map_err(|error| match error {
        TapeError::Shape {
            op,
            what,
            expected,
            found,
        } => TapeError::Shape {
            op,
            what: format!("{what} ({name})"),
            expected,
            found,
        },
        error => error,
    })
}

/// `x Wᵀ + b`; a frozen `W` may be in bits, and an adapter may stand beside it.
#[derive(Debug, Clone)]
pub struct Linear {
    name: Arc<str>,
    weight: ParameterId,
    bias: ParameterId,
    adapter: Option<Adapter>,
}

impl Linear {
    /// Maps `inputs` to `outputs`; weights deviate by `deviation`, biases are 0.
    pub fn build(
        b: &mut Builder,
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
                adapter: b.adapter(outputs, inputs)?,
            })
        })
    }

    /// [.., inputs] to [.., outputs].
    pub fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let bias = tape.parameter(self.bias);
        self.map().forward(tape, x, Some(&bias))
    }

    /// As [`Linear::forward`], added to `residual`.
    pub fn forward_add(&self, tape: &Tape, x: &Value, residual: &Value) -> Result<Value> {
        if !self.is_plain(tape) {
            return tape.add(&self.forward(tape, x)?, residual);
        }
        let (weight, bias) = self.values(tape);
        of(&self.name, tape.linear_add(x, &weight, &bias, residual))
    }

    /// The product alone, and the bias that is still to be added.
    pub(super) fn without_bias(&self, tape: &Tape, x: &Value) -> Result<(Value, Value)> {
        if !self.is_plain(tape) {
            let y = self.map().forward(tape, x, None)?;
            return Ok((y, tape.parameter(self.bias)));
        }
        let (weight, bias) = self.values(tape);
        // A bias that does not fit is refused here, where its name is known.
        let unfit = (bias.dims() != &weight.dims()[..1]).then_some(&bias);
        let y = of(&self.name, tape.linear(x, &weight, unfit))?;
        Ok((y, bias))
    }

    /// A weight in floating point and nothing beside it: the operations that do more than a map know no other.
    pub(super) fn is_plain(&self, tape: &Tape) -> bool {
        self.adapter.is_none() && tape.quantized(self.weight).is_none()
    }

    fn map(&self) -> Map<'_> {
        Map {
            name: &self.name,
            weight: self.weight,
            adapter: self.adapter.as_ref(),
        }
    }

    /// Weight and bias.
    pub(super) fn values(&self, tape: &Tape) -> (Value, Value) {
        (tape.parameter(self.weight), tape.parameter(self.bias))
    }

    /// The name that refusals are told by.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// A weight by which rows are mapped, in whatever form it is, with the adapter beside it.
pub(super) struct Map<'a> {
    /// The name that refusals are told by.
    pub name: &'a str,
    /// [outputs, inputs].
    pub weight: ParameterId,
    /// What trains beside it.
    pub adapter: Option<&'a Adapter>,
}

impl Map<'_> {
    /// [.., inputs] to [.., outputs].
    pub fn forward(&self, tape: &Tape, x: &Value, bias: Option<&Value>) -> Result<Value> {
        let y = match tape.quantized(self.weight) {
            Some(weight) => {
                // As narrow as `x`: in a half type the sum is rounded anyway.
                let bias = bias.map(|bias| tape.cast(bias, x.tensor().dtype()));
                tape.quantized_linear(x, weight, bias.transpose()?.as_ref())
            }
            None => tape.linear(x, &tape.parameter(self.weight), bias),
        };
        let y = of(self.name, y)?;
        match self.adapter {
            Some(adapter) => adapter.add(tape, self.name, x, &y),
            None => Ok(y),
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
    /// Norm of rows of `width`.
    pub fn build(b: &mut Builder, name: &str, width: usize, epsilon: f64) -> Result<Self> {
        b.within(name, |b| {
            Ok(LayerNorm {
                name: b.prefix(),
                weight: b.constant("weight", &[width], 1.0)?,
                bias: b.constant("bias", &[width], 0.0)?,
                epsilon,
            })
        })
    }

    /// [.., width] to the same.
    pub fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let (weight, bias) = (tape.parameter(self.weight), tape.parameter(self.bias));
        of(&self.name, tape.layer_norm(x, &weight, &bias, self.epsilon))
    }
}

/// Group norm over channels.
#[derive(Debug, Clone)]
pub struct GroupNorm {
    name: Arc<str>,
    weight: ParameterId,
    bias: ParameterId,
    groups: usize,
}

/// What GroupNorm adds to a variance.
pub(crate) const GROUP_EPSILON: f64 = 1e-5;

impl GroupNorm {
    /// Norm of `channels` in `groups`.
    pub fn build(b: &mut Builder, name: &str, channels: usize, groups: usize) -> Result<Self> {
        b.within(name, |b| {
            Ok(GroupNorm {
                name: b.prefix(),
                weight: b.constant("weight", &[channels], 1.0)?,
                bias: b.constant("bias", &[channels], 0.0)?,
                groups,
            })
        })
    }

    /// [samples, channels, height, width] to the same, `activation` applied.
    pub fn forward(&self, tape: &Tape, x: &Value, activation: Activation) -> Result<Value> {
        let parameters = (&tape.parameter(self.weight), &tape.parameter(self.bias));
        of(
            &self.name,
            tape.group_norm(x, self.groups, parameters, GROUP_EPSILON, activation),
        )
    }
}

/// One factor and one term a channel.
#[derive(Debug, Clone)]
pub struct ChannelScale {
    name: Arc<str>,
    weight: ParameterId,
    bias: ParameterId,
}

impl ChannelScale {
    /// Factors of 1 and terms of 0 for `channels`.
    pub fn build(b: &mut Builder, name: &str, channels: usize) -> Result<Self> {
        b.within(name, |b| {
            Ok(ChannelScale {
                name: b.prefix(),
                weight: b.constant("weight", &[channels], 1.0)?,
                bias: b.constant("bias", &[channels], 0.0)?,
            })
        })
    }

    /// [samples, channels, height, width] to the same, `activation` applied.
    pub fn forward(&self, tape: &Tape, x: &Value, activation: Activation) -> Result<Value> {
        // As wide as `x`: in a half type the product is rounded anyway.
        let by_channel = |id| -> Result<Value> {
            let value = tape.cast(&tape.parameter(id), x.tensor().dtype())?;
            let channels = value.dims()[0];
            tape.reshape(&value, &[channels, 1, 1])
        };
        let y = of(&self.name, tape.broadcast_mul(x, &by_channel(self.weight)?))?;
        let y = of(&self.name, tape.broadcast_add(&y, &by_channel(self.bias)?))?;
        tape.activate(&y, activation)
    }
}

/// What follows a convolution.
#[derive(Debug, Clone)]
pub(super) enum Norm {
    Group(GroupNorm),
    Frozen(ChannelScale),
}

impl Norm {
    /// The norm of that kind; `groups` counts for GroupNorm alone.
    pub fn build(
        b: &mut Builder,
        name: &str,
        channels: usize,
        groups: usize,
        norm: ResNetNorm,
    ) -> Result<Self> {
        Ok(match norm {
            ResNetNorm::Group => Norm::Group(GroupNorm::build(b, name, channels, groups)?),
            ResNetNorm::Frozen => Norm::Frozen(ChannelScale::build(b, name, channels)?),
        })
    }

    /// [samples, channels, height, width] to the same, `activation` applied.
    pub fn forward(&self, tape: &Tape, x: &Value, activation: Activation) -> Result<Value> {
        match self {
            Norm::Group(norm) => norm.forward(tape, x, activation),
            Norm::Frozen(norm) => norm.forward(tape, x, activation),
        }
    }
}

/// Convolution without bias.
#[derive(Debug, Clone)]
pub struct Conv {
    name: Arc<str>,
    weight: ParameterId,
    shape: Conv2dShape,
}

impl Conv {
    /// A square kernel of side `kernel`, padded so that stride 1 keeps the size. First values by He et al. 2015.
    pub fn build(
        b: &mut Builder,
        name: &str,
        (inputs, outputs): (usize, usize),
        kernel: usize,
        stride: usize,
    ) -> Result<Self> {
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

    /// [samples, inputs, height, width] to [samples, outputs, ..].
    pub fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        self.ending(tape, x)?.finish(tape)
    }

    /// As [`Conv::forward`], the convolution still to be done.
    pub(super) fn ending(&self, tape: &Tape, x: &Value) -> Result<DeferredOutput> {
        let ending = DeferredOutput::Conv2d(x.clone(), tape.parameter(self.weight), self.shape);
        of(&self.name, ending.checked())
    }
}
