//! What follows each convolution of a residual network: GroupNorm, or a frozen BatchNorm.

use super::shape::ResNetNorm;
use crate::error::naming;
use crate::layers::GroupNorm;
use crate::parameter_builder::ParameterBuilder;
use std::sync::Arc;
use tape::{Activation, ParameterId, Result, Tape, Value};

/// One factor and one term per channel: BatchNorm with the statistics it was published with.
#[derive(Debug, Clone)]
pub struct ChannelScale {
    name: Arc<str>,
    weight: ParameterId,
    bias: ParameterId,
}

impl ChannelScale {
    /// Factors of 1 and terms of 0 for `channels`.
    pub fn build(b: &mut ParameterBuilder, name: &str, channels: usize) -> Result<Self> {
        b.within(name, |b| {
            Ok(ChannelScale {
                name: b.prefix(),
                weight: b.constant("weight", &[channels], 1.0)?,
                bias: b.constant("bias", &[channels], 0.0)?,
            })
        })
    }

    /// Scales `x` [samples, channels, height, width] and applies `activation`.
    pub fn forward(&self, tape: &Tape, x: &Value, activation: Activation) -> Result<Value> {
        // In a half type the product is rounded anyway, so the factors may be too.
        let by_channel = |id| -> Result<Value> {
            let value = tape.cast(&tape.parameter(id), x.tensor().dtype())?;
            let channels = value.dims()[0];
            tape.reshape(&value, &[channels, 1, 1])
        };
        let y = naming(&self.name, tape.broadcast_mul(x, &by_channel(self.weight)?))?;
        let y = naming(&self.name, tape.broadcast_add(&y, &by_channel(self.bias)?))?;
        tape.activate(&y, activation)
    }
}

/// The norm after a convolution.
#[derive(Debug, Clone)]
pub(crate) enum Norm {
    Group(GroupNorm),
    Frozen(ChannelScale),
}

impl Norm {
    /// Builds a norm of this kind; only GroupNorm uses `groups`.
    pub fn build(
        b: &mut ParameterBuilder,
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

    /// Normalizes `x` [samples, channels, height, width] and applies `activation`.
    pub fn forward(&self, tape: &Tape, x: &Value, activation: Activation) -> Result<Value> {
        match self {
            Norm::Group(norm) => norm.forward(tape, x, activation),
            Norm::Frozen(norm) => norm.forward(tape, x, activation),
        }
    }
}
