//! Optimizers and their state. The state is part of every checkpoint. It is in memory, or in a
//! memory-mapped file while memory is short; the weights do not depend on where it is.
//!
//! To add an optimizer, write its file, declare it here, add it to `rule_of`, and add its name to
//! [`OptimizerChoice`](runlog::OptimizerChoice) in `runlog/src/choice_settings.rs`.

mod adamw;
mod adamw8bit;
mod lion;
mod mapped_state;
pub mod tensor_to_save;
mod sgd;

use crate::error::{Result, TrainError};
use candle_core::{DType, Device, Tensor};
use distributed::Values;
use mapped_state::MappedState;
pub use runlog::OptimizerChoice as OptimizerKind;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use tape::device::{convert, read, with_autorelease_pool};
use tape::optim::Member;
use tape::{Parameters, Rng};
use tensor_to_save::SavedTensor;

/// Its update rule and state.
fn rule_of(kind: OptimizerKind) -> &'static dyn Optimizer {
    match kind {
        OptimizerKind::AdamW => &adamw::AdamW,
        OptimizerKind::AdamW8bit => &adamw8bit::AdamW8bit,
        OptimizerKind::Sgd => &sgd::Sgd,
        OptimizerKind::Lion => &lion::Lion,
    }
}

/// The default learning rate of an optimizer, relative to that of AdamW.
pub(crate) fn rate_factor(kind: OptimizerKind) -> f64 {
    rule_of(kind).rate_factor()
}

/// True if [`OptimizerKind::AdamW8bit`] would take less state.
pub(crate) fn has_8bit_variant(kind: OptimizerKind) -> bool {
    rule_of(kind).has_8bit_variant()
}

/// Bytes of the state of each parameter, by position.
pub(crate) fn state_sizes(kind: OptimizerKind, parameters: &Parameters) -> Vec<u64> {
    let state = parameters.iter().map(|p| rule_of(kind).state(&p.tensor));
    state
        .map(|specs| specs.iter().map(StateSpec::bytes).sum())
        .collect()
}

/// An update rule and the state that it keeps for each parameter.
trait Optimizer: Sync {
    /// The default learning rate, relative to that of AdamW.
    fn rate_factor(&self) -> f64 {
        1.0
    }

    /// True if there is an 8-bit variant with less state.
    fn has_8bit_variant(&self) -> bool {
        false
    }

    /// The state tensors of one parameter. They start at zero.
    fn state(&self, parameter: &Tensor) -> Vec<StateSpec>;

    /// The first and the second state tensor of the fused GPU kernel; none if it cannot update this
    /// state.
    fn fused_state<'a>(&self, state: &'a [StateTensor]) -> Option<[&'a Tensor; 2]>;

    /// Updates many parameters in a few GPU launches, each with its own weight decay. Returns false
    /// and does nothing if there is no kernel for the device. The bits are those of
    /// [`Optimizer::step`].
    fn step_fused(&self, members: &[Member], options: &StepOptions) -> Result<bool>;

    /// Updates one parameter and its state. `noise` belongs to the parameter and the step.
    fn step(
        &self,
        parameter: &mut Tensor,
        state: &mut [StateTensor],
        gradient: &Tensor,
        options: &StepOptions,
        noise: Rng,
    ) -> Result<()>;
}

#[derive(Clone, Copy)]
struct StepOptions {
    learning_rate: f64,
    weight_decay: f64,
    /// Divides the summed gradient by the weight of the effective batch, and clips it.
    gradient_factor: f64,
    /// The number of the step, counted from 1.
    step: u64,
}

/// Describes a state tensor.
struct StateSpec {
    /// Its name in a checkpoint, behind that of the parameter.
    name: &'static str,
    dtype: DType,
    dims: Vec<usize>,
}

impl StateSpec {
    /// A tensor of the parameter's shape and type.
    fn like(name: &'static str, parameter: &Tensor) -> Self {
        StateSpec {
            name,
            dtype: parameter.dtype(),
            dims: parameter.dims().to_vec(),
        }
    }

    fn bytes(&self) -> u64 {
        (self.dims.iter().product::<usize>() * self.dtype.size_in_bytes()) as u64
    }

    /// Zeros, from host data: a device then allocates the exact size.
    fn zeros(&self, device: &Device) -> Result<StateTensor> {
        let (count, dims) = (self.dims.iter().product(), self.dims.as_slice());
        let tensor = if self.dtype == DType::U8 {
            Tensor::from_vec(vec![0u8; count], dims, device)?
        } else {
            convert(
                &Tensor::from_vec(vec![0f32; count], dims, device)?,
                self.dtype,
            )?
        };
        let name = self.name;
        Ok(StateTensor { name, tensor })
    }
}

/// A state tensor of one parameter.
struct StateTensor {
    /// Its name in a checkpoint, behind that of the parameter.
    name: &'static str,
    tensor: Tensor,
}

impl StateSpec {
    fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// The values that this rank adds to a sum over all ranks: those of the tensor, or negative
    /// zeros, which change no bit of the sum.
    fn to_values(&self, mine: Option<&Tensor>) -> Result<Values> {
        Ok(match (self.dtype, mine) {
            (DType::F64, None) => Values::Double(vec![-0.0; self.count()]),
            (_, None) => Values::Single(vec![-0.0; self.count()]),
            (DType::F64, Some(tensor)) => Values::Double(read(tensor)?),
            (DType::U8, Some(tensor)) => {
                let bytes: Vec<u8> = read(tensor)?;
                Values::Single(bytes.into_iter().map(f32::from).collect())
            }
            (_, Some(tensor)) => Values::Single(read(tensor)?),
        })
    }

    /// The tensor with these values, on the CPU.
    fn with_values(&self, values: Values) -> Result<StateTensor> {
        let dims = self.dims.as_slice();
        let tensor = match (self.dtype, values) {
            (DType::F64, Values::Double(values)) => Tensor::from_vec(values, dims, &Device::Cpu)?,
            (DType::U8, Values::Single(values)) => {
                let bytes: Vec<u8> = values.into_iter().map(|value| value as u8).collect();
                Tensor::from_vec(bytes, dims, &Device::Cpu)?
            }
            (DType::F32, Values::Single(values)) => Tensor::from_vec(values, dims, &Device::Cpu)?,
            _ => return Err(incomplete_state()),
        };
        let name = self.name;
        Ok(StateTensor { name, tensor })
    }
}

/// These values times `factor`.
pub(crate) fn scaled(values: Values, factor: f64) -> Values {
    match values {
        Values::Single(mut values) => {
            values.iter_mut().for_each(|value| *value *= factor as f32);
            Values::Single(values)
        }
        Values::Double(mut values) => {
            values.iter_mut().for_each(|value| *value *= factor);
            Values::Double(values)
        }
    }
}

/// The error for state that does not have the tensors of [`Optimizer::state`].
fn incomplete_state() -> TrainError {
    candle_core::Error::Msg("the optimizer state is incomplete".to_owned()).into()
}

/// Parameters with the same weight decay.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterGroup {
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Indices of its parameters.
    pub parameters: Vec<usize>,
}

/// Matrices and kernels, which decay, and norms and biases, which do not.
fn groups(weight_decay: f64, parameters: &Parameters) -> [ParameterGroup; 2] {
    let group = |decays: bool, weight_decay: f64| ParameterGroup {
        weight_decay,
        parameters: (0..parameters.len())
            .filter(|&index| parameters.at(index).decays == decays)
            .collect(),
    };
    [group(true, weight_decay), group(false, 0.0)]
}

/// Where the state of all parameters is.
enum Storage {
    Resident(Vec<Vec<StateTensor>>),
    Mapped(MappedState),
}

/// An optimizer with the state of every parameter, in the parameters' order.
pub struct OptimizerState {
    optimizer: &'static dyn Optimizer,
    groups: [ParameterGroup; 2],
    storage: Storage,
    /// Rounds 8-bit state.
    noise: Rng,
    /// Bytes of the state that other machines have.
    elsewhere_bytes: u64,
    /// The state of all parameters after the newest update, for a checkpoint.
    gathered: Option<MappedState>,
}

/// Space on the disk for the state of all parameters, which several machines have in parts.
pub(crate) struct GatheredState(MappedState);

impl OptimizerState {
    /// State of zeros for all parameters.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn new(kind: OptimizerKind, weight_decay: f64, parameters: &Parameters) -> Result<Self> {
        OptimizerState::without_state(kind, weight_decay, parameters).begun(parameters, None)
    }

    /// An optimizer whose state does not exist yet. It cannot update anything before
    /// [`OptimizerState::begin`].
    pub(crate) fn without_state(
        kind: OptimizerKind,
        weight_decay: f64,
        parameters: &Parameters,
    ) -> Self {
        OptimizerState {
            optimizer: rule_of(kind),
            groups: groups(weight_decay, parameters),
            storage: Storage::Resident(Vec::new()),
            noise: Rng::new(0),
            elsewhere_bytes: 0,
            gathered: None,
        }
    }

    /// Rounds 8-bit state by the run's seed.
    pub(crate) fn with_seed(self, seed: u64) -> Self {
        let noise = Rng::new(seed).site("moments");
        OptimizerState { noise, ..self }
    }

    /// Makes the state of the parameters that are `owned`, by position, of zeros; that of all if
    /// nothing is passed. The state of the others is never made: other machines have it, and
    /// [`OptimizerState::update`] does not update these parameters.
    ///
    /// # Errors
    /// The device has no memory.
    pub(crate) fn begin(&mut self, parameters: &Parameters, owned: Option<&[bool]>) -> Result<()> {
        let is_owned = |index: usize| owned.is_none_or(|owned| owned[index]);
        for group in &mut self.groups {
            group.parameters.retain(|&index| is_owned(index));
        }
        let (mut all, mut elsewhere_bytes) = (Vec::with_capacity(parameters.len()), 0);
        for (index, parameter) in parameters.iter().enumerate() {
            let specs = self.optimizer.state(&parameter.tensor);
            let device = parameter.tensor.device();
            all.push(if is_owned(index) {
                let state = specs.iter().map(|spec| spec.zeros(device));
                state.collect::<Result<_>>()?
            } else {
                elsewhere_bytes += specs.iter().map(StateSpec::bytes).sum::<u64>();
                Vec::new()
            });
        }
        (self.storage, self.elsewhere_bytes) = (Storage::Resident(all), elsewhere_bytes);
        Ok(())
    }

    /// This optimizer after [`OptimizerState::begin`].
    fn begun(mut self, parameters: &Parameters, owned: Option<&[bool]>) -> Result<Self> {
        self.begin(parameters, owned)?;
        Ok(self)
    }

    /// Whether the state of all parameters is here, so that a checkpoint can be written.
    pub(crate) fn is_complete(&self) -> bool {
        self.elsewhere_bytes == 0 || self.gathered.is_some()
    }

    /// Reserves space in `folder` for [`OptimizerState::gather`].
    ///
    /// # Errors
    /// The disk is full, or the folder is not writable.
    pub(crate) fn reserve(&self, parameters: &Parameters, folder: &Path) -> Result<GatheredState> {
        let specs: Vec<_> = self.specs(parameters).collect();
        MappedState::reserve(&specs, folder, &Device::Cpu).map(GatheredState)
    }

    fn specs(&self, parameters: &Parameters) -> impl Iterator<Item = Vec<StateSpec>> {
        let optimizer = self.optimizer;
        parameters.iter().map(|p| optimizer.state(&p.tensor))
    }

    /// Gathers the state of all parameters, each of which one machine has, into `space` at the
    /// machine that passes some. `sum` adds up values of all machines. The state is there until the
    /// next update. All machines call it at the same step.
    ///
    /// # Errors
    /// A sum failed, or the state cannot be read or written.
    pub(crate) fn gather(
        &mut self,
        parameters: &Parameters,
        space: Option<GatheredState>,
        sum: &mut dyn FnMut(Values) -> Result<Values>,
    ) -> Result<()> {
        for (index, specs) in self.specs(parameters).enumerate() {
            let mine = self.tensors(index)?;
            let mut state = Vec::with_capacity(specs.len());
            for (at, spec) in specs.iter().enumerate() {
                let summed = sum(spec.to_values(mine.get(at))?)?;
                if space.is_some() {
                    state.push(spec.with_values(summed)?);
                }
            }
            if let Some(GatheredState(file)) = &space {
                file.put(index, &state)?;
            }
        }
        self.gathered = space.map(|GatheredState(file)| file);
        Ok(())
    }

    /// Replaces the state by the mean of the states of all machines. The part of this one is
    /// `weight`; `sum` adds up values of all machines, which call it after the same step.
    ///
    /// # Errors
    /// A sum failed, or the state cannot be read or written.
    pub(crate) fn average(
        &mut self,
        parameters: &Parameters,
        weight: f64,
        sum: &mut dyn FnMut(Values) -> Result<Values>,
    ) -> Result<()> {
        let specs: Vec<Vec<StateSpec>> = self.specs(parameters).collect();
        for (index, specs) in specs.iter().enumerate() {
            let device = parameters.at(index).tensor.device();
            let mine = self.tensors(index)?;
            let mut state = Vec::with_capacity(specs.len());
            for (spec, mine) in specs.iter().zip(&mine) {
                let mean = sum(scaled(spec.to_values(Some(mine))?, weight))?;
                let StateTensor { name, tensor } = spec.with_values(mean)?;
                let tensor = tensor.to_device(device)?;
                state.push(StateTensor { name, tensor });
            }
            match &mut self.storage {
                Storage::Resident(all) => all[index] = state,
                Storage::Mapped(file) => file.put(index, &state)?,
            }
        }
        Ok(())
    }

    /// The state tensors of a parameter; none if another machine has them.
    fn tensors(&self, index: usize) -> Result<Vec<Tensor>> {
        let state = match &self.storage {
            Storage::Resident(all) => {
                let state = all.get(index).into_iter().flatten();
                return Ok(state.map(|state| state.tensor.clone()).collect());
            }
            Storage::Mapped(file) => file.get(index)?,
        };
        Ok(state.into_iter().map(|state| state.tensor).collect())
    }

    /// The parameter groups.
    pub fn groups(&self) -> &[ParameterGroup] {
        &self.groups
    }

    /// One step. `gradient_factor` divides by the weight of the effective batch and clips. `step`
    /// counts from 1.
    ///
    /// # Errors
    /// The device failed, or the mapped state cannot be read or written.
    pub fn update(
        &mut self,
        parameters: &mut Parameters,
        gradients: &[Tensor],
        learning_rate: f64,
        gradient_factor: f64,
        step: u64,
    ) -> Result<()> {
        self.gathered = None;
        if self.groups.iter().all(|group| group.parameters.is_empty()) {
            return Ok(());
        }
        let options = StepOptions {
            learning_rate,
            weight_decay: 0.0,
            gradient_factor,
            step,
        };
        if self.update_together(parameters, gradients, &options)? {
            return Ok(());
        }
        with_autorelease_pool(|| self.update_each(parameters, gradients, &options))
    }

    /// Updates one parameter after another.
    fn update_each(
        &mut self,
        parameters: &mut Parameters,
        gradients: &[Tensor],
        options: &StepOptions,
    ) -> Result<()> {
        for group in &self.groups {
            let options = StepOptions {
                weight_decay: group.weight_decay,
                ..*options
            };
            for &index in &group.parameters {
                let parameter = parameters.at(index);
                let noise = self.noise.site(&parameter.name).at(options.step);
                let (mut tensor, gradient) = (parameter.tensor.clone(), &gradients[index]);
                let mut step = |state: &mut [StateTensor]| -> Result<()> {
                    if let Some([first, second]) = self.optimizer.fused_state(state) {
                        let member = Member {
                            parameter: &tensor,
                            first,
                            second,
                            gradient,
                            weight_decay: group.weight_decay,
                        };
                        if self.optimizer.step_fused(&[member], &options)? {
                            return Ok(());
                        }
                    }
                    self.optimizer
                        .step(&mut tensor, state, gradient, &options, noise)
                };
                match &mut self.storage {
                    Storage::Resident(all) => step(&mut all[index])?,
                    Storage::Mapped(file) => {
                        let mut state = file.get(index)?;
                        step(&mut state)?;
                        file.put(index, &state)?;
                    }
                }
                parameters.set(index, tensor)?;
            }
        }
        Ok(())
    }

    /// Updates all parameters in a few GPU launches. Returns false and does nothing if there is no
    /// kernel for it or the state is not in memory.
    fn update_together(
        &self,
        parameters: &Parameters,
        gradients: &[Tensor],
        options: &StepOptions,
    ) -> Result<bool> {
        let Storage::Resident(all) = &self.storage else {
            return Ok(false);
        };
        let mut members = Vec::with_capacity(all.len());
        for group in &self.groups {
            for &index in &group.parameters {
                let Some([first, second]) = self.optimizer.fused_state(&all[index]) else {
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
        self.optimizer.step_fused(&members, options)
    }

    /// Frees the state.
    pub(crate) fn unload(&mut self) {
        self.storage = Storage::Resident(Vec::new());
        self.gathered = None;
    }

    /// Moves the state to a scratch file in `folder`. If that fails, the state stays as it is.
    ///
    /// # Errors
    /// The disk is full, or the folder is not writable.
    pub fn map(&mut self, folder: &Path, device: &Device) -> Result<()> {
        if let Storage::Resident(state) = &self.storage {
            self.storage = Storage::Mapped(MappedState::write(state, folder, device)?);
        }
        Ok(())
    }

    /// Moves the state back into memory.
    ///
    /// # Errors
    /// The file cannot be read; the state stays as it is.
    pub(crate) fn unmap(&mut self) -> Result<()> {
        if let Storage::Mapped(file) = &self.storage {
            self.storage = Storage::Resident(file.read()?);
        }
        Ok(())
    }

    /// True if the state is in a file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.storage, Storage::Mapped(_))
    }

    /// Bytes of the state, wherever it is.
    pub fn bytes(&self) -> u64 {
        match &self.storage {
            Storage::Resident(state) => bytes_of(state),
            Storage::Mapped(file) => file.bytes(),
        }
    }

    /// Bytes of the state of all parameters in a checkpoint.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.bytes() + self.elsewhere_bytes
    }

    /// Bytes of the state in memory.
    pub fn resident_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Resident(state) => bytes_of(state),
            Storage::Mapped(_) => 0,
        }
    }

    /// State tensors in memory, by name.
    ///
    /// # Errors
    /// The file that the state is in cannot be mapped.
    pub fn named(&self, parameters: &Parameters) -> Result<HashMap<String, Tensor>> {
        let mut all = HashMap::new();
        for (index, parameter) in parameters.iter().enumerate() {
            let mut insert = |state: &StateTensor| {
                let name = format!("{}.{}", parameter.name, state.name);
                all.insert(name, state.tensor.clone());
            };
            match &self.storage {
                Storage::Resident(state) => state[index].iter().for_each(&mut insert),
                Storage::Mapped(file) => file.get(index)?.iter().for_each(&mut insert),
            }
        }
        Ok(all)
    }

    /// State tensors for a checkpoint, by name: `blocks.0.conv1.weight.first_moment`.
    ///
    /// # Errors
    /// The file that the state is in cannot be mapped.
    pub fn saved(&self, parameters: &Parameters) -> Result<Vec<(String, SavedTensor)>> {
        let mut all = Vec::new();
        for (index, parameter) in parameters.iter().enumerate() {
            let saved = match (&self.gathered, &self.storage) {
                (Some(file), _) | (None, Storage::Mapped(file)) => file.saved(index)?,
                (None, Storage::Resident(state)) => {
                    let state = state[index].iter();
                    let saved = |s: &StateTensor| (s.name, SavedTensor::Resident(s.tensor.clone()));
                    state.map(saved).collect()
                }
            };
            let full_name = |(name, tensor)| (format!("{}.{name}", parameter.name), tensor);
            all.extend(saved.into_iter().map(full_name));
        }
        Ok(all)
    }

    /// The names that the state of this machine has in a checkpoint.
    pub(crate) fn state_names(&self, parameters: &Parameters) -> HashSet<String> {
        let owned = self.groups.iter().flat_map(|group| &group.parameters);
        let names = owned.flat_map(|&index| {
            let parameter = parameters.at(index);
            let specs = self.optimizer.state(&parameter.tensor);
            let name = |spec: StateSpec| format!("{}.{}", parameter.name, spec.name);
            specs.into_iter().map(name)
        });
        names.collect()
    }

    /// Restores the state from a checkpoint, into memory.
    ///
    /// # Errors
    /// A tensor is missing, or has another shape or type.
    pub fn load(
        &mut self,
        parameters: &Parameters,
        mut saved: HashMap<String, Tensor>,
        path: &Path,
    ) -> Result<()> {
        self.unmap()?;
        let Storage::Resident(all) = &mut self.storage else {
            return Ok(());
        };
        for (parameter, state) in parameters.iter().zip(all) {
            for StateTensor { name, tensor } in state {
                let name = format!("{}.{name}", parameter.name);
                let found = saved
                    .remove(&name)
                    .filter(|t| t.shape() == tensor.shape() && t.dtype() == tensor.dtype());
                *tensor = found.ok_or_else(|| TrainError::TensorMismatch {
                    path: path.to_owned(),
                    problem: format!("{name} is missing, or its shape is not {:?}", tensor.dims()),
                })?;
            }
        }
        Ok(())
    }
}

fn bytes_of(state: &[Vec<StateTensor>]) -> u64 {
    let tensors = state.iter().flatten().map(|state| &state.tensor);
    let bytes = |t: &Tensor| (t.elem_count() * t.dtype().size_in_bytes()) as u64;
    tensors.map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Result<Parameters> {
        let mut parameters = Parameters::default();
        for (name, count) in [("first", 6), ("second", 4)] {
            let values = vec![0.5; count];
            parameters.add(name.to_owned(), values, &[count], DType::F32, &Device::Cpu)?;
        }
        Ok(parameters)
    }

    #[test]
    fn machines_that_share_the_state_update_what_they_own() -> Result<()> {
        let before = parameters()?;
        let kind = OptimizerKind::AdamW;
        assert!(OptimizerState::new(kind, 0.0, &before)?.is_complete());
        let (mut held, mut changed) = (0, Vec::new());
        for owned in [[true, false], [false, true], [false, false]] {
            let mut state = OptimizerState::without_state(kind, 0.0, &before);
            state.begin(&before, Some(&owned))?;
            assert!(!state.is_complete() && state.saved_bytes() == 80);
            held += state.bytes();
            let mut updated = parameters()?;
            let gradients: Vec<Tensor> = before.iter().map(|p| p.tensor.clone()).collect();
            state.update(&mut updated, &gradients, 0.1, 1.0, 1)?;
            for index in 0..2 {
                let values: Vec<f32> = read(&updated.at(index).tensor)?;
                changed.push(values.iter().any(|value| *value != 0.5));
            }
            // On a machine alone, the gathered state is its own, and zeros for the rest.
            let space = state.reserve(&updated, &std::env::temp_dir())?;
            let mut sums = 0;
            state.gather(&updated, Some(space), &mut |values| {
                sums += 1;
                Ok(values)
            })?;
            assert_eq!(sums, 4, "two moments of two parameters");
            assert!(state.is_complete() && state.saved(&updated)?.len() == 4);
        }
        assert_eq!(held, 80, "each machine has its part");
        assert_eq!(changed, [true, false, false, true, false, false]);
        Ok(())
    }
}
