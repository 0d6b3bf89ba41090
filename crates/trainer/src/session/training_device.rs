//! The device that a session trains on: it is checked before its first use and replaced if it is
//! lost. Knows whether the weights and moments on it can be trusted.

mod fault_counts;

use crate::checkpoint::{self, Loaded, OptimizerState};
use crate::device_check::{CheckObserver, checked_device_for};
use crate::error::{Result, TrainError};
use crate::event_log::Observer;
use crate::machine_sources::Machine;
use crate::memory_controller::MemoryController;
use crate::plan::Plan;
use crate::run_control::Control;
use crate::run_group::Owners;
use crate::train_state::TrainState;
use candle_core::Device;
use fault_counts::FaultCounts;
use pressure::Moments;
use runlog::{RunEvent, RunFolder};
use std::ops::ControlFlow;
use tape::device::{SelectedDevice, discard, select_device, synchronize, with_autorelease_pool};

/// The device of one session.
pub struct TrainingDevice {
    pub chosen: SelectedDevice,
    /// Its failures so far.
    pub faults: FaultCounts,
    /// Whether weights or moments are missing or may be wrong, so that a checkpoint must be loaded.
    pub must_reload: bool,
    micro_batch_limit_bytes: Option<u64>,
}

impl TrainingDevice {
    /// Chooses the device of the plan. A GPU is checked first, and `observer` gets the progress at
    /// the training time `at_ms`.
    ///
    /// # Errors
    /// There is no such device, it computes wrong results, or the user has stopped the run.
    pub fn choose(
        plan: &Plan,
        machine: &Machine,
        control: &Control,
        observer: Observer,
        at_ms: u64,
    ) -> Result<Self> {
        let mut progress = CheckProgress {
            control,
            observer,
            at_ms,
        };
        let saved = machine.device_check_path.as_deref();
        let chosen = checked_device_for(plan.device, plan.precision, saved, &mut progress)?;
        plan.precision.device_warning(&chosen, plan.device)?;
        Ok(TrainingDevice {
            chosen,
            faults: FaultCounts::default(),
            must_reload: false,
            micro_batch_limit_bytes: machine.micro_batch_limit_bytes,
        })
    }

    /// The weights before the first step, without any moments.
    pub fn initial_weights(&self, plan: &Plan) -> Result<TrainState> {
        let learner = TrainState::without_moments(plan, &self.chosen.device)?;
        Ok(learner.with_memory_limit(self.micro_batch_limit_bytes))
    }

    /// The weights before the first step, and the moments that this rank has; all if there are no
    /// `owners`.
    fn initial_state(&self, plan: &Plan, owners: Option<&Owners>) -> Result<TrainState> {
        let mut learner = self.initial_weights(plan)?;
        learner.begin_moments(owners.map(Owners::mine).as_deref())?;
        Ok(learner)
    }

    /// Replaces `learner` by the initial state, for a run without a checkpoint.
    pub fn reset(
        &mut self,
        plan: &Plan,
        owners: Option<&Owners>,
        learner: &mut TrainState,
    ) -> Result<()> {
        let outer = learner.outer.take();
        *learner = self.initial_state(plan, owners)?;
        learner.outer = outer;
        self.must_reload = false;
        Ok(())
    }

    /// Replaces `learner` by the weights and moments of a checkpoint.
    pub fn load(
        &mut self,
        plan: &Plan,
        owners: Option<&Owners>,
        loaded: &Loaded,
        learner: &mut TrainState,
    ) -> Result<()> {
        let outer = learner.outer.take();
        *learner = self.initial_state(plan, owners)?;
        learner.outer = outer;
        with_autorelease_pool(|| checkpoint::load(loaded, learner, OptimizerState::Load))?;
        self.must_reload = false;
        Ok(())
    }

    /// Frees weights and moments.
    pub fn unload(&mut self, learner: &mut TrainState) {
        self.must_reload = true;
        learner.unload();
    }

    /// Moves the optimizer's moments between memory and disk. Returns `false` if they are there
    /// already.
    ///
    /// # Errors
    /// The scratch file in `run` cannot be written or read, or the device failed, and the moments
    /// must be reloaded.
    pub fn place_moments(
        &mut self,
        place: Moments,
        learner: &mut TrainState,
        run: &RunFolder,
    ) -> Result<bool> {
        let is_mapped = learner.optimizer.is_mapped();
        if learner.is_unloaded() || is_mapped == (place == Moments::Mapped) {
            return Ok(false);
        }
        let moved = learner.move_moments(place, &run.path);
        moved.inspect_err(|error| self.must_reload = error.device_fault().is_some())?;
        Ok(true)
    }

    /// Waits for the device and returns a failure of earlier work that it reports.
    pub fn earlier_fault(&self) -> Option<TrainError> {
        let error = TrainError::from(synchronize(&self.chosen.device).err()?);
        error.device_fault().map(|_| error)
    }

    /// Replaces a lost device by a new one of the same kind. The state has been dropped. The lost
    /// device is dropped first, with its pools: a run that uses most of the memory has no space
    /// for those of two devices.
    pub fn replace(
        &mut self,
        learner: &mut TrainState,
        controller: &mut MemoryController,
    ) -> Result<()> {
        let lost = std::mem::replace(&mut self.chosen.device, Device::Cpu);
        learner.forget_device();
        controller.replace_device(&Device::Cpu);
        discard(lost);
        let device = select_device(self.chosen.kind.into())?.device;
        controller.replace_device(&device);
        self.chosen.device = device;
        Ok(())
    }
}

/// Reports a device check to the observer of a run, and ends it if the user stops the run.
struct CheckProgress<'c, 'o> {
    control: &'c Control,
    observer: &'c mut (dyn FnMut(&RunEvent) + Send + 'o),
    at_ms: u64,
}

impl CheckObserver for CheckProgress<'_, '_> {
    fn progress(&mut self, done: usize, total: usize) -> ControlFlow<()> {
        (self.observer)(&RunEvent::DeviceCheck {
            at_ms: self.at_ms,
            done: done as u32,
            total: total as u32,
        });
        if self.control.is_stopping() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
