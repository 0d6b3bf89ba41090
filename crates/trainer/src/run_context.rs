//! What a caller passes to a run beside its plan, and what it gets back.

use crate::error::{Result, TrainError};
use crate::live::LiveObserver;
use crate::machine_sources::Machine;
use crate::plan::Plan;
use crate::replay::Replay;
use crate::run_control::Control;
use crate::run_group::RunGroup;
use runlog::StopReason;
use std::path::PathBuf;
use std::sync::Arc;

/// Inputs of a run beside its plan.
#[derive(Debug, Clone, Default)]
pub struct RunContext {
    /// Carries the user's requests into the loop.
    pub control: Control,
    /// The machine to train on, real or scripted.
    pub machine: Machine,
    /// Micro-batch schedule of a recorded run to repeat.
    pub replay: Option<Replay>,
    /// The footprint that was estimated before the start, in bytes; 0 if none was.
    pub estimated_peak_bytes: u64,
    /// The machines that train the run together; by default, this one alone.
    pub group: RunGroup,
    /// The folder that has the samples of a resumed run on this machine; by default, the one that
    /// the run began with.
    pub data_folder: Option<PathBuf>,
    /// Shows what happens between two events.
    pub live: Option<Arc<dyn LiveObserver>>,
}

impl RunContext {
    /// Lets the group repeat the recorded run, if there is one, from step `done` on. Alone, the
    /// memory controller follows its schedule.
    ///
    /// # Errors
    /// Another number of processes trained the recorded run, or it cannot be repeated because its
    /// rounding errors are not recorded.
    pub(crate) fn replaying_from(mut self, plan: &Plan, done: u64) -> Result<Self> {
        if let Some(replay) = self.replay.take() {
            if plan.exchanges_in_bf16() && !self.group.is_alone() {
                let message = "a run whose machines exchange gradients in bf16 cannot be repeated bit by bit; train it with --exchange f32".to_owned();
                return Err(TrainError::NotTrainable { message });
            }
            self.replay = self.group.replay(replay, done)?;
        }
        Ok(self)
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunOutcome {
    /// Why it ended.
    pub reason: StopReason,
    /// Optimizer steps done.
    pub step: u64,
    /// Newest held-out accuracy, `0.0..=1.0`; `None` for tasks without classes.
    pub accuracy: Option<f64>,
}
