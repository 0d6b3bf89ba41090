//! AdamW and SGD with named moments. Weight decay spares norms and biases. State is part of every checkpoint.

use crate::error::{Result, TrainError};
use crate::plan::OptimizerKind;
use candle_core::Tensor;
use std::collections::HashMap;
use std::path::Path;
use tape::Parameters;
use tape::update::{AdamW, Sgd, adamw, sgd};

/// AdamW's decay of the moments and its epsilon (Loshchilov and Hutter 2019).
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;
/// SGD's momentum.
const MOMENTUM: f64 = 0.9;

/// Moments of every parameter, in the parameters' order.
pub struct Optimizer {
    kind: OptimizerKind,
    weight_decay: f64,
    moments: Vec<Vec<Tensor>>,
}

/// Names of the moments in a checkpoint, in order.
fn names(kind: OptimizerKind) -> &'static [&'static str] {
    match kind {
        OptimizerKind::AdamW => &["first_moment", "second_moment"],
        OptimizerKind::Sgd => &["momentum"],
    }
}

impl Optimizer {
    /// All moments zero, from host data: a device then allocates their exact size.
    pub fn new(kind: OptimizerKind, weight_decay: f64, parameters: &Parameters) -> Result<Self> {
        let zero = |tensor: &Tensor| -> Result<Tensor> {
            let zeros = vec![0f32; tensor.elem_count()];
            Ok(Tensor::from_vec(zeros, tensor.shape(), tensor.device())?
                .to_dtype(tensor.dtype())?)
        };
        let moments = parameters
            .iter()
            .map(|p| names(kind).iter().map(|_| zero(&p.tensor)).collect())
            .collect::<Result<_>>()?;
        Ok(Optimizer {
            kind,
            weight_decay,
            moments,
        })
    }

    /// One step: `gradient_factor` divides by the effective batch's weight and clips. `step` counts from 1.
    pub fn update(
        &mut self,
        parameters: &mut Parameters,
        gradients: &[Tensor],
        learning_rate: f64,
        gradient_factor: f64,
        step: u64,
    ) -> Result<()> {
        for (index, (moments, gradient)) in self.moments.iter_mut().zip(gradients).enumerate() {
            let parameter = parameters.at(index);
            let weight_decay = if parameter.decays {
                self.weight_decay
            } else {
                0.0
            };
            let mut tensor = parameter.tensor.clone();
            match (self.kind, moments.as_mut_slice()) {
                (OptimizerKind::AdamW, [first, second]) => {
                    let (beta1, beta2) = BETAS;
                    let rule = AdamW {
                        learning_rate,
                        beta1,
                        beta2,
                        epsilon: EPSILON,
                        weight_decay,
                        step,
                        gradient_factor,
                    };
                    adamw(&mut tensor, first, second, gradient, rule)?;
                }
                (_, [momentum, ..]) => {
                    let rule = Sgd {
                        learning_rate,
                        momentum: MOMENTUM,
                        weight_decay,
                        gradient_factor,
                    };
                    sgd(&mut tensor, momentum, gradient, rule)?;
                }
                _ => {}
            }
            parameters.set(index, tensor)?;
        }
        Ok(())
    }

    /// Drops all moments.
    pub fn unload(&mut self) {
        self.moments = Vec::new();
    }

    /// Bytes of all moments.
    pub fn bytes(&self) -> u64 {
        self.moments
            .iter()
            .flatten()
            .map(|t| (t.elem_count() * t.dtype().size_in_bytes()) as u64)
            .sum()
    }

    /// Moments by name: `blocks.0.conv1.weight.first_moment`.
    pub fn named(&self, parameters: &Parameters) -> HashMap<String, Tensor> {
        let names = names(self.kind);
        let named = parameters
            .iter()
            .zip(&self.moments)
            .flat_map(|(p, moments)| {
                names
                    .iter()
                    .zip(moments)
                    .map(|(name, tensor)| (format!("{}.{name}", p.name), tensor.clone()))
            });
        named.collect()
    }

    /// Takes moments from a checkpoint.
    pub fn load(
        &mut self,
        parameters: &Parameters,
        mut saved: HashMap<String, Tensor>,
        path: &Path,
    ) -> Result<()> {
        let names = names(self.kind);
        for (parameter, moments) in parameters.iter().zip(&mut self.moments) {
            for (name, moment) in names.iter().zip(moments) {
                let name = format!("{}.{name}", parameter.name);
                let tensor = saved
                    .remove(&name)
                    .filter(|t| t.shape() == moment.shape() && t.dtype() == moment.dtype());
                *moment = tensor.ok_or_else(|| TrainError::Misfit {
                    path: path.to_owned(),
                    what: format!(
                        "{name} is missing or has another shape than {:?}",
                        moment.dims()
                    ),
                })?;
            }
        }
        Ok(())
    }
}
