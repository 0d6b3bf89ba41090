//! AdamW, AdamW with moments of one byte a value, and SGD, with named moments. State is part of every checkpoint. It is in
//! memory, or in a memory-mapped file while memory is short; no bit of it depends on where.

mod mapped;
pub mod saved_tensor;
mod step;

use crate::error::{Result, TrainError};
use crate::plan::OptimizerKind;
use candle_core::{Device, Tensor};
use mapped::MappedMoments;
use saved_tensor::SavedTensor;
use std::collections::HashMap;
use std::path::Path;
use step::Step;
use tape::optim::{AdamWStep, ByteMoment, Member};
use tape::{Parameters, Rng};

/// AdamW's decay of the moments and its epsilon (Loshchilov and Hutter 2019).
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;
/// SGD's momentum.
const MOMENTUM: f64 = 0.9;
/// Parameters with fewer values keep moments in full: they weigh nothing and are the ones most easily upset
/// (Dettmers et al. 2022).
const BYTES_FROM: usize = 4096;

/// Parameters that are updated by the same numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Positions of its parameters.
    pub parameters: Vec<usize>,
}

/// Matrices and kernels, which decay, and norms and biases, which do not.
fn groups(weight_decay: f64, parameters: &Parameters) -> [Group; 2] {
    let group = |decays: bool, weight_decay: f64| Group {
        weight_decay,
        parameters: (0..parameters.len())
            .filter(|&index| parameters.at(index).decays == decays)
            .collect(),
    };
    [group(true, weight_decay), group(false, 0.0)]
}

/// Moments of one parameter.
enum Moments {
    Momentum(Tensor),
    Full(Tensor, Tensor),
    Bytes(ByteMoment, ByteMoment),
}

impl Moments {
    /// All zero, from host data: a device then allocates their exact size.
    fn zero(kind: OptimizerKind, parameter: &Tensor) -> Result<Self> {
        let zero = || -> Result<Tensor> {
            let zeros = vec![0f32; parameter.elem_count()];
            let zeros = Tensor::from_vec(zeros, parameter.shape(), parameter.device())?;
            Ok(zeros.to_dtype(parameter.dtype())?)
        };
        Ok(match kind {
            OptimizerKind::Sgd => Moments::Momentum(zero()?),
            OptimizerKind::AdamW8bit if parameter.elem_count() >= BYTES_FROM => {
                Moments::Bytes(ByteMoment::zeros(parameter)?, ByteMoment::zeros(parameter)?)
            }
            OptimizerKind::AdamW | OptimizerKind::AdamW8bit => Moments::Full(zero()?, zero()?),
        })
    }

    /// Both moments where they are kept in full; SGD's only one stands in for the other, which it does not look at.
    fn in_full(&self) -> Option<(&Tensor, &Tensor)> {
        match self {
            Moments::Momentum(only) => Some((only, only)),
            Moments::Full(first, second) => Some((first, second)),
            Moments::Bytes(..) => None,
        }
    }

    /// Every tensor with its name in a checkpoint.
    fn named(&self) -> Vec<(&'static str, &Tensor)> {
        match self {
            Moments::Momentum(momentum) => vec![("momentum", momentum)],
            Moments::Full(first, second) => {
                vec![("first_moment", first), ("second_moment", second)]
            }
            Moments::Bytes(first, second) => vec![
                ("first_moment.codes", &first.codes),
                ("first_moment.scales", &first.scales),
                ("second_moment.codes", &second.codes),
                ("second_moment.scales", &second.scales),
            ],
        }
    }

    /// The same tensors in the same order, to be replaced.
    fn slots(&mut self) -> Vec<&mut Tensor> {
        match self {
            Moments::Momentum(momentum) => vec![momentum],
            Moments::Full(first, second) => vec![first, second],
            Moments::Bytes(first, second) => vec![
                &mut first.codes,
                &mut first.scales,
                &mut second.codes,
                &mut second.scales,
            ],
        }
    }
}

/// Where the moments are.
enum Kept {
    Resident(Vec<Moments>),
    Mapped(MappedMoments),
}

/// Moments of every parameter, in the parameters' order.
pub struct Optimizer {
    groups: [Group; 2],
    kept: Kept,
    /// By this moments in bytes are rounded.
    noise: Rng,
}

impl Optimizer {
    /// All moments zero.
    pub fn new(kind: OptimizerKind, weight_decay: f64, parameters: &Parameters) -> Result<Self> {
        let moments = parameters
            .iter()
            .map(|p| Moments::zero(kind, &p.tensor))
            .collect::<Result<_>>()?;
        Ok(Optimizer {
            groups: groups(weight_decay, parameters),
            kept: Kept::Resident(moments),
            noise: Rng::new(0),
        })
    }

    /// Rounds moments in bytes by the run's seed.
    pub fn with_seed(self, seed: u64) -> Self {
        let noise = Rng::new(seed).site("moments");
        Optimizer { noise, ..self }
    }

    /// Which parameters are updated by which numbers.
    pub fn groups(&self) -> &[Group] {
        &self.groups
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
        let step = Step {
            adam: AdamWStep {
                learning_rate,
                beta1: BETAS.0,
                beta2: BETAS.1,
                epsilon: EPSILON,
                weight_decay: 0.0,
                step,
                gradient_factor,
            },
        };
        if self.update_together(parameters, gradients, step)? {
            return Ok(());
        }
        for group in &self.groups {
            let step = step.decaying(group.weight_decay);
            for &index in &group.parameters {
                let parameter = parameters.at(index);
                let noise = self.noise.site(&parameter.name).at(step.adam.step);
                let mut tensor = parameter.tensor.clone();
                let gradient = &gradients[index];
                match &mut self.kept {
                    Kept::Resident(all) => {
                        step.alone(&mut tensor, &mut all[index], gradient, noise)?;
                    }
                    Kept::Mapped(file) => {
                        let mut moments = file.get(index)?;
                        step.alone(&mut tensor, &mut moments, gradient, noise)?;
                        file.put(index, &moments)?;
                    }
                }
                parameters.set(index, tensor)?;
            }
        }
        Ok(())
    }

    /// All parameters in a few launches, where a GPU's kernels run and the moments are in its memory in full; else nothing.
    fn update_together(
        &self,
        parameters: &Parameters,
        gradients: &[Tensor],
        step: Step,
    ) -> Result<bool> {
        let Kept::Resident(all) = &self.kept else {
            return Ok(false);
        };
        let mut members = Vec::with_capacity(all.len());
        for group in &self.groups {
            for &index in &group.parameters {
                let Some((first, second)) = all[index].in_full() else {
                    return Ok(false);
                };
                members.push(Member {
                    parameter: &parameters.at(index).tensor,
                    first,
                    second,
                    gradient: &gradients[index],
                    weight_decay: group.weight_decay,
                });
            }
        }
        let momentum = all.iter().any(|m| matches!(m, Moments::Momentum(_)));
        step.together(&members, momentum)
    }

    /// Drops all moments.
    pub fn unload(&mut self) {
        self.kept = Kept::Resident(Vec::new());
    }

    /// Moves the moments to a scratch file in `folder`. Where that fails they stay as they are.
    ///
    /// # Errors
    /// The disk has no room, or the folder cannot be written to.
    pub fn map(&mut self, folder: &Path, device: &Device) -> Result<()> {
        if let Kept::Resident(moments) = &self.kept {
            self.kept = Kept::Mapped(MappedMoments::write(moments, folder, device)?);
        }
        Ok(())
    }

    /// Takes the moments back into memory.
    ///
    /// # Errors
    /// The file cannot be read; nothing has changed then.
    pub fn unmap(&mut self) -> Result<()> {
        if let Kept::Mapped(file) = &self.kept {
            self.kept = Kept::Resident(file.read()?);
        }
        Ok(())
    }

    /// The moments are in a file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.kept, Kept::Mapped(_))
    }

    /// Bytes of all moments, wherever they are.
    pub fn bytes(&self) -> u64 {
        match &self.kept {
            Kept::Resident(moments) => bytes_of(moments),
            Kept::Mapped(file) => file.bytes(),
        }
    }

    /// Bytes of each tensor of the moments in memory.
    pub fn sizes_bytes(&self) -> Vec<u64> {
        match &self.kept {
            Kept::Resident(moments) => sizes_of(moments).collect(),
            Kept::Mapped(_) => Vec::new(),
        }
    }

    /// Bytes of the moments in memory.
    pub fn resident_bytes(&self) -> u64 {
        match &self.kept {
            Kept::Resident(moments) => bytes_of(moments),
            Kept::Mapped(_) => 0,
        }
    }

    /// Moments by name, as tensors in memory.
    ///
    /// # Errors
    /// The file that they are in cannot be mapped.
    pub fn named(&self, parameters: &Parameters) -> Result<HashMap<String, Tensor>> {
        let mut all = HashMap::new();
        for (index, parameter) in parameters.iter().enumerate() {
            let fetched;
            let moments = match &self.kept {
                Kept::Resident(moments) => &moments[index],
                Kept::Mapped(file) => {
                    fetched = file.get(index)?;
                    &fetched
                }
            };
            for (part, tensor) in moments.named() {
                all.insert(format!("{}.{part}", parameter.name), tensor.clone());
            }
        }
        Ok(all)
    }

    /// Moments by name for a checkpoint: `blocks.0.conv1.weight.first_moment`.
    ///
    /// # Errors
    /// The file that they are in cannot be mapped.
    pub fn saved(&self, parameters: &Parameters) -> Result<Vec<(String, SavedTensor)>> {
        let mut all = Vec::new();
        for (index, parameter) in parameters.iter().enumerate() {
            let parts = match &self.kept {
                Kept::Mapped(file) => file.saved(index)?,
                Kept::Resident(moments) => {
                    let parts = moments[index].named().into_iter();
                    parts
                        .map(|(part, tensor)| (part, SavedTensor::Resident(tensor.clone())))
                        .collect()
                }
            };
            let full = |(part, tensor)| (format!("{}.{part}", parameter.name), tensor);
            all.extend(parts.into_iter().map(full));
        }
        Ok(all)
    }

    /// Takes moments from a checkpoint.
    pub fn load(
        &mut self,
        parameters: &Parameters,
        mut saved: HashMap<String, Tensor>,
        path: &Path,
    ) -> Result<()> {
        self.unmap()?;
        let Kept::Resident(all) = &mut self.kept else {
            return Ok(());
        };
        for (parameter, moments) in parameters.iter().zip(all) {
            let parts: Vec<&str> = moments.named().into_iter().map(|(part, _)| part).collect();
            for (part, moment) in parts.into_iter().zip(moments.slots()) {
                let name = format!("{}.{part}", parameter.name);
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

fn bytes_of(moments: &[Moments]) -> u64 {
    sizes_of(moments).sum()
}

fn sizes_of(moments: &[Moments]) -> impl Iterator<Item = u64> {
    let tensors = moments.iter().flat_map(Moments::named);
    tensors.map(|(_, t)| (t.elem_count() * t.dtype().size_in_bytes()) as u64)
}
