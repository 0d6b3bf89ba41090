//! Layers: positions of their parameters and the operation that uses them.

use super::Builder;
use tape::{Activation, Conv2dShape, ParameterId, Result, Tape, Value};

/// `x Wᵀ + b`.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: ParameterId,
    bias: ParameterId,
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
                weight: b.normal("weight", &[outputs, inputs], deviation)?,
                bias: b.constant("bias", &[outputs], 0.0)?,
            })
        })
    }

    /// [.., inputs] to [.., outputs].
    pub fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        tape.linear(
            x,
            &tape.parameter(self.weight),
            Some(&tape.parameter(self.bias)),
        )
    }
}

/// Layer norm over the last axis.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    weight: ParameterId,
    bias: ParameterId,
    epsilon: f64,
}

impl LayerNorm {
    /// Norm of rows of `width`.
    pub fn build(b: &mut Builder, name: &str, width: usize, epsilon: f64) -> Result<Self> {
        b.within(name, |b| {
            Ok(LayerNorm {
                weight: b.constant("weight", &[width], 1.0)?,
                bias: b.constant("bias", &[width], 0.0)?,
                epsilon,
            })
        })
    }

    /// [.., width] to the same.
    pub fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        tape.layer_norm(
            x,
            &tape.parameter(self.weight),
            &tape.parameter(self.bias),
            self.epsilon,
        )
    }
}

/// Group norm over channels.
#[derive(Debug, Clone)]
pub struct GroupNorm {
    weight: ParameterId,
    bias: ParameterId,
    groups: usize,
}

/// Added to a variance.
const EPSILON: f64 = 1e-5;

impl GroupNorm {
    /// Norm of `channels` in `groups`.
    pub fn build(b: &mut Builder, name: &str, channels: usize, groups: usize) -> Result<Self> {
        b.within(name, |b| {
            Ok(GroupNorm {
                weight: b.constant("weight", &[channels], 1.0)?,
                bias: b.constant("bias", &[channels], 0.0)?,
                groups,
            })
        })
    }

    /// [samples, channels, height, width] to the same, `activation` applied.
    pub fn forward(&self, tape: &Tape, x: &Value, activation: Activation) -> Result<Value> {
        let parameters = (&tape.parameter(self.weight), &tape.parameter(self.bias));
        tape.group_norm(x, self.groups, parameters, EPSILON, activation)
    }
}

/// Convolution without bias.
#[derive(Debug, Clone)]
pub struct Conv {
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
        tape.conv2d(x, &tape.parameter(self.weight), self.shape)
    }
}
