//! Training of several machines that exchange weights only every few steps (DiLoCo: Douillard et
//! al. 2023, arXiv:2311.08105). In between, each machine updates its own weights with the gradients
//! of its own samples. Then the machines synchronize: they average the changes of their weights,
//! and use this average as the gradient of an outer step (stochastic gradient descent with Nesterov
//! momentum). They also average the moments of the optimizer. All machines then have the same
//! state, so the checkpoint of one machine is complete. The result differs from a training on one
//! machine.

use crate::error::{Result, TrainError};
use crate::optimizer::scaled;
use crate::optimizer::tensor_to_save::SavedTensor;
use candle_core::{DType, Device, Tensor};
use distributed::Values;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;
use tape::Parameters;
use tape::device::read;

/// Learning rate of the outer steps, as in the paper.
const RATE: f64 = 0.7;
/// Momentum of the outer steps, as in the paper.
const MOMENTUM: f64 = 0.9;

/// Adds up values of all machines.
pub(crate) type Sum<'a> = dyn FnMut(Values) -> Result<Values> + 'a;

/// What a machine needs for the outer steps. The values are in the memory of the host.
pub struct OuterStep {
    /// Steps between two synchronizations.
    every: u64,
    /// The weights after the newest synchronization, by position. Empty while they are unknown.
    anchor: Vec<Values>,
    /// The momentum of the outer steps, by position. Empty before the first one. Tensors, so that a
    /// checkpoint is written without a copy.
    momentum: Vec<Tensor>,
    /// Samples that this machine has processed since the newest synchronization.
    samples: u64,
    /// Whether the machines have made steps of their own since then.
    is_open: bool,
    /// The machines synchronize after this step, because of a checkpoint.
    is_asked: bool,
}

impl OuterStep {
    /// Synchronizes after every `every` steps.
    pub(crate) fn new(every: u64) -> Self {
        OuterStep {
            every: every.max(1),
            anchor: Vec::new(),
            momentum: Vec::new(),
            samples: 0,
            is_open: false,
            is_asked: false,
        }
    }

    /// Begins at these weights, which all machines have, unless the weights of the newest
    /// synchronization are known.
    pub(crate) fn begin(&mut self, parameters: &Parameters) -> Result<()> {
        if self.anchor.is_empty() {
            self.anchor = all_values(parameters)?;
        }
        Ok(())
    }

    /// Whether the machines have made steps of their own since the newest synchronization. No
    /// machine then has the weights of the run.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The machines make a step of their own, for which this one has processed `samples`. They
    /// synchronize after it if it `is_asked`. All machines pass the same.
    pub(crate) fn count_step(&mut self, samples: u64, is_asked: bool) {
        self.samples += samples;
        (self.is_open, self.is_asked) = (true, is_asked);
    }

    /// Samples that this machine has processed since the newest synchronization.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Whether the machines synchronize after this step.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        self.is_asked || step.is_multiple_of(self.every)
    }

    /// The steps up to `step` since the planned synchronization before it. What is due after one of
    /// them is done after `step`.
    pub(crate) fn steps_until(&self, step: u64) -> RangeInclusive<u64> {
        step.saturating_sub(1) / self.every * self.every + 1..=step
    }

    /// Replaces the parameters of this machine, whose part of the processed samples is `weight`, by
    /// those of the outer step. All machines call it after the same step, and get the same bits.
    ///
    /// # Errors
    /// A sum failed, or the device failed. The parameters may then be those of two steps.
    pub(crate) fn apply(
        &mut self,
        parameters: &mut Parameters,
        weight: f64,
        sum: &mut Sum,
    ) -> Result<()> {
        for index in 0..parameters.len() {
            let tensor = &parameters.at(index).tensor;
            let (dims, device) = (tensor.dims().to_vec(), tensor.device().clone());
            let mut change = values_of(tensor)?;
            let anchor = self.anchor.get_mut(index).ok_or_else(missing_weights)?;
            subtract_from(anchor, &mut change, weight)?;
            let change = sum(change)?;
            let mut momentum = match self.momentum.get(index) {
                Some(momentum) => values_of(momentum)?,
                None => zeros_like(anchor),
            };
            nesterov(anchor, &mut momentum, &change)?;
            let momentum = to_tensor(momentum, &dims, &Device::Cpu)?;
            match self.momentum.get_mut(index) {
                Some(before) => *before = momentum,
                None => self.momentum.push(momentum),
            }
            parameters.set(index, to_tensor(anchor.clone(), &dims, &device)?)?;
        }
        (self.samples, self.is_open, self.is_asked) = (0, false, false);
        Ok(())
    }

    /// Frees what a checkpoint has.
    pub(crate) fn unload(&mut self) {
        (self.anchor, self.momentum) = (Vec::new(), Vec::new());
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.anchor.iter().map(|values| match values {
            Values::Single(values) => 4 * values.len() as u64,
            Values::Double(values) => 8 * values.len() as u64,
        });
        bytes.sum::<u64>() + self.saved_bytes()
    }

    /// Bytes in a checkpoint.
    pub(crate) fn saved_bytes(&self) -> u64 {
        let bytes = |tensor: &Tensor| tensor.elem_count() * tensor.dtype().size_in_bytes();
        self.momentum.iter().map(|it| bytes(it) as u64).sum()
    }

    /// The momentum for a checkpoint, under the names of the parameters. The weights of a
    /// checkpoint are those after a synchronization.
    pub(crate) fn saved(&self, parameters: &Parameters) -> Vec<(String, SavedTensor)> {
        let named = parameters.iter().zip(&self.momentum);
        let saved = named.map(|(parameter, momentum)| {
            let momentum = SavedTensor::Resident(momentum.clone());
            (parameter.name.clone(), momentum)
        });
        saved.collect()
    }

    /// Restores the momentum of a checkpoint with these parameters; none if it `saved` nothing. The
    /// tensors are in the memory of the host.
    ///
    /// # Errors
    /// A tensor is missing, or has another size or type.
    pub(crate) fn load(
        &mut self,
        parameters: &Parameters,
        saved: &HashMap<String, Tensor>,
        path: &Path,
    ) -> Result<()> {
        self.anchor = all_values(parameters)?;
        (self.momentum, self.samples) = (Vec::new(), 0);
        (self.is_open, self.is_asked) = (false, false);
        if saved.is_empty() {
            return Ok(());
        }
        for parameter in parameters.iter() {
            let name = &parameter.name;
            let fits = |tensor: &&Tensor| {
                tensor.dims() == parameter.tensor.dims()
                    && tensor.dtype() == parameter.tensor.dtype()
            };
            let found = saved.get(name).filter(fits);
            let found = found.ok_or_else(|| TrainError::TensorMismatch {
                path: path.to_owned(),
                problem: format!("{name} is missing, or its shape is not that of the parameter"),
            })?;
            self.momentum.push(found.clone());
        }
        Ok(())
    }
}

/// Replaces tensors of this machine, whose part of the processed samples is `weight`, by the mean
/// of those of all machines.
///
/// # Errors
/// A sum failed, or the device failed.
pub(crate) fn average_parameters(
    parameters: &mut Parameters,
    weight: f64,
    sum: &mut Sum,
) -> Result<()> {
    for index in 0..parameters.len() {
        let tensor = &parameters.at(index).tensor;
        let (dims, device) = (tensor.dims().to_vec(), tensor.device().clone());
        let mean = sum(scaled(values_of(tensor)?, weight))?;
        parameters.set(index, to_tensor(mean, &dims, &device)?)?;
    }
    Ok(())
}

/// Replaces the values of this machine by their distance to the anchor, times `weight`.
fn subtract_from(anchor: &Values, mine: &mut Values, weight: f64) -> Result<()> {
    match (anchor, mine) {
        (Values::Single(anchor), Values::Single(mine)) => {
            for (mine, anchor) in mine.iter_mut().zip(anchor) {
                *mine = (anchor - *mine) * weight as f32;
            }
        }
        (Values::Double(anchor), Values::Double(mine)) => {
            for (mine, anchor) in mine.iter_mut().zip(anchor) {
                *mine = (anchor - *mine) * weight;
            }
        }
        _ => return Err(missing_weights()),
    }
    Ok(())
}

/// One step of gradient descent with Nesterov momentum: v = 0.9 v + g, w = w - 0.7 (g + 0.9 v).
fn nesterov(weights: &mut Values, momentum: &mut Values, gradient: &Values) -> Result<()> {
    match (weights, momentum, gradient) {
        (Values::Single(weights), Values::Single(momentum), Values::Single(gradient)) => {
            let (rate, decay) = (RATE as f32, MOMENTUM as f32);
            let velocities = momentum.iter_mut().zip(gradient);
            for (weight, (velocity, gradient)) in weights.iter_mut().zip(velocities) {
                *velocity = decay * *velocity + gradient;
                *weight -= rate * (gradient + decay * *velocity);
            }
        }
        (Values::Double(weights), Values::Double(momentum), Values::Double(gradient)) => {
            let velocities = momentum.iter_mut().zip(gradient);
            for (weight, (velocity, gradient)) in weights.iter_mut().zip(velocities) {
                *velocity = MOMENTUM * *velocity + gradient;
                *weight -= RATE * (gradient + MOMENTUM * *velocity);
            }
        }
        _ => return Err(missing_weights()),
    }
    Ok(())
}

/// The error for weights that do not belong to the momentum.
fn missing_weights() -> TrainError {
    candle_core::Error::Msg("the state of the outer steps is incomplete".to_owned()).into()
}

fn zeros_like(values: &Values) -> Values {
    match values {
        Values::Single(values) => Values::Single(vec![0.0; values.len()]),
        Values::Double(values) => Values::Double(vec![0.0; values.len()]),
    }
}

fn all_values(parameters: &Parameters) -> Result<Vec<Values>> {
    let tensors = parameters.iter().map(|parameter| &parameter.tensor);
    tensors.map(values_of).collect()
}

fn values_of(tensor: &Tensor) -> Result<Values> {
    Ok(match tensor.dtype() {
        DType::F64 => Values::Double(read(tensor)?),
        _ => Values::Single(read(tensor)?),
    })
}

fn to_tensor(values: Values, dims: &[usize], device: &Device) -> Result<Tensor> {
    Ok(match values {
        Values::Single(values) => Tensor::from_vec(values, dims, device)?,
        Values::Double(values) => Tensor::from_vec(values, dims, device)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(values: [f64; 2]) -> Result<Parameters> {
        let mut parameters = Parameters::default();
        parameters.add(
            "w".to_owned(),
            values.to_vec(),
            &[2],
            DType::F64,
            &Device::Cpu,
        )?;
        Ok(parameters)
    }

    fn values(parameters: &Parameters) -> Result<Vec<f64>> {
        Ok(read(&parameters.at(0).tensor)?)
    }

    /// The other machine, which has processed three quarters of the samples, has these weights.
    fn add_other(anchor: &[f64], weights: [f64; 2]) -> impl FnMut(Values) -> Result<Values> {
        move |mine| {
            let Values::Double(mut sum) = mine else {
                return Err(missing_weights());
            };
            for (sum, (anchor, weight)) in sum.iter_mut().zip(anchor.iter().zip(weights)) {
                *sum += 0.75 * (anchor - weight);
            }
            Ok(Values::Double(sum))
        }
    }

    #[test]
    fn an_outer_step_follows_the_mean_change_with_nesterov_momentum() -> Result<()> {
        let mut own = parameters([1.0, 2.0])?;
        let mut outer = OuterStep::new(4);
        outer.begin(&own)?;
        let mut anchor = vec![1.0, 2.0];
        let mut velocity = [0.0; 2];
        for round in 0..3 {
            let shift = f64::from(round) / 4.0;
            let theirs = [anchor[0] - 0.5, anchor[1] + shift];
            own = parameters([anchor[0] - 0.25, anchor[1] - 1.0])?;
            let mine = values(&own)?;
            outer.count_step(8, false);
            assert!(outer.is_open());
            outer.apply(&mut own, 0.25, &mut add_other(&anchor, theirs))?;
            assert!(!outer.is_open() && outer.samples() == 0);
            for (at, velocity) in velocity.iter_mut().enumerate() {
                let change = 0.25 * (anchor[at] - mine[at]) + 0.75 * (anchor[at] - theirs[at]);
                *velocity = 0.9 * *velocity + change;
                anchor[at] -= 0.7 * (change + 0.9 * *velocity);
            }
            let found = values(&own)?;
            let error = (found[0] - anchor[0]).abs() + (found[1] - anchor[1]).abs();
            assert!(error < 1e-12, "round {round}: {found:?} and {anchor:?}");
            anchor = found;
        }
        Ok(())
    }

    /// The sum over one machine.
    fn alone(values: Values) -> Result<Values> {
        Ok(values)
    }

    #[test]
    fn the_momentum_survives_a_checkpoint() -> Result<()> {
        let mut own = parameters([1.0, 2.0])?;
        let mut outer = OuterStep::new(2);
        outer.begin(&parameters([1.5, 1.0])?)?;
        assert_eq!(outer.saved_bytes(), 0, "nothing before the first step");
        outer.apply(&mut own, 1.0, &mut alone)?;
        assert_eq!(outer.saved_bytes(), 2 * 8);
        assert_eq!(outer.bytes(), 2 * 2 * 8, "the weights and their momentum");
        let saved = outer.saved(&own).into_iter().map(|(name, saved)| {
            let SavedTensor::Resident(tensor) = saved else {
                unreachable!("it is in memory");
            };
            (name, tensor)
        });
        let saved: HashMap<String, Tensor> = saved.collect();
        let mut restored = OuterStep::new(2);
        restored.load(&own, &saved, Path::new("outer"))?;
        let momentum = |outer: &OuterStep| read::<f64>(&outer.momentum[0]);
        assert_eq!(momentum(&restored)?, momentum(&outer)?);
        assert_eq!(restored.anchor, outer.anchor);
        let other = HashMap::from([("v".to_owned(), own.at(0).tensor.clone())]);
        let refused = restored.load(&own, &other, Path::new("outer"));
        assert!(refused.is_err_and(|error| error.to_string().contains("w is missing")));
        // A run that has trained alone since then has no momentum.
        restored.load(&own, &HashMap::new(), Path::new("outer"))?;
        assert!(restored.momentum.is_empty());
        Ok(())
    }

    #[test]
    fn what_is_due_between_two_synchronizations_is_done_at_the_second() {
        let mut outer = OuterStep::new(5);
        assert!(outer.is_due(10) && !outer.is_due(11));
        outer.count_step(8, true);
        assert!(outer.is_due(11), "a checkpoint asks for it");
        outer.count_step(8, false);
        assert!(!outer.is_due(12));
        assert_eq!(outer.steps_until(10), 6..=10);
        assert_eq!(outer.steps_until(8), 6..=8);
        assert!(outer.steps_until(0).is_empty());
    }
}
