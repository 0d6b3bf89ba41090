//! What a checkpoint consists of: the tensors of its files, and the state of the run.

use super::{ADAPTER, AVERAGE, MODEL, OPTIMIZER, OUTER, RunState};
use crate::error::Result;
use crate::optimizer::tensor_to_save::SavedTensor;
use crate::train_state::TrainState;
use models::is_adapter;
use tape::Parameters;

/// The tensors of a file by name.
pub(super) type NamedTensors = Vec<(String, SavedTensor)>;

/// The content of one checkpoint.
pub(crate) struct Content {
    files: Vec<(&'static str, NamedTensors)>,
    state: RunState,
    /// Bytes of all tensors.
    bytes: u64,
}

impl Content {
    /// The content at `state`. It shares the tensors of `learner`, so the next step changes them.
    ///
    /// # Errors
    /// The moments are in a file that cannot be mapped.
    pub fn new(learner: &TrainState, state: &RunState) -> Result<Self> {
        let mut files = weight_files(learner);
        let moments = learner.optimizer.saved(&learner.parameters)?;
        files.push((OPTIMIZER, moments));
        if let Some(outer) = learner.outer.as_ref().filter(|it| it.saved_bytes() > 0) {
            files.push((OUTER, outer.saved(&learner.parameters)));
        }
        Ok(Content {
            files,
            state: RunState {
                loss_scale: learner.loss_scale(),
                skipped: learner.skipped(),
                ..state.clone()
            },
            bytes: learner.saved_bytes(),
        })
    }

    /// A copy in memory that no step changes. `None` if tensors are in a file, because memory is
    /// short then.
    ///
    /// # Errors
    /// The device fails.
    pub fn copied(&self) -> Result<Option<Self>> {
        let copied = self.files.iter().map(|(name, tensors)| {
            let tensors = copied_tensors(tensors)?;
            Ok(tensors.map(|tensors| (*name, tensors)))
        });
        let files: Option<Vec<_>> = copied.collect::<Result<_>>()?;
        Ok(files.map(|files| Content {
            files,
            state: self.state.clone(),
            bytes: self.bytes,
        }))
    }

    /// The files with tensors.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &NamedTensors)> {
        self.files.iter().map(|(name, tensors)| (*name, tensors))
    }

    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Sets the number of the checkpoint in its run.
    pub fn set_number(&mut self, number: u64) {
        self.state.number = number;
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn copied_tensors(tensors: &NamedTensors) -> Result<Option<NamedTensors>> {
    let copied = tensors.iter().map(|(name, tensor)| {
        let copy = tensor.copied()?;
        Ok(copy.map(|copy| (name.clone(), copy)))
    });
    copied.collect()
}

/// The files of weights, each with its tensors by name. Adapters and averages are separate files.
fn weight_files(learner: &TrainState) -> Vec<(&'static str, NamedTensors)> {
    let by_name = |parameters: &Parameters| -> NamedTensors {
        let named = parameters.iter();
        let saved = named.map(|p| (p.name.clone(), SavedTensor::Resident(p.tensor.clone())));
        saved.collect()
    };
    let (adapters, model): (Vec<_>, Vec<_>) = by_name(&learner.parameters)
        .into_iter()
        .partition(|(name, _)| is_adapter(name));
    let mut files = vec![(MODEL, model)];
    if !adapters.is_empty() {
        files.push((ADAPTER, adapters));
    }
    if let Some(average) = &learner.average {
        files.push((AVERAGE, by_name(&average.parameters)));
    }
    files
}
