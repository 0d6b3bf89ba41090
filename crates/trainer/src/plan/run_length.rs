//! Changes how long a run trains after it has begun.

use super::hyperparameters::warmup_steps;
use super::setting_errors::invalid_setting;
use super::{Compression, Plan};
use crate::error::Result;
use crate::lr_schedule::Schedule;
use runlog::{RunConfig, counted, format_count};

/// How long a run trains in all, from its first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLength {
    /// Passes over the training samples.
    Epochs(u64),
    /// Optimizer steps.
    Steps(u64),
}

impl RunLength {
    /// This length as the settings of a config, which replace those of `config`.
    fn applied_to(self, config: RunConfig, steps: u64) -> RunConfig {
        RunConfig {
            epochs: match self {
                RunLength::Epochs(epochs) => Some(epochs),
                RunLength::Steps(_) => None,
            },
            steps: Some(steps),
            ..config
        }
    }
}

impl Plan {
    /// The plan of a run of another length, of which `done` steps are trained. Whatever depends on
    /// the number of steps (the learning rate, the temperature of token compression) is from now on
    /// that of a run which was planned with this length from the start.
    ///
    /// # Errors
    /// No step would be left to train, or the number of steps is out of range.
    pub(crate) fn with_length(self, length: RunLength, done: u64) -> Result<Plan> {
        let per_epoch = self.steps_per_epoch.max(1);
        let (key, value, all, least) = match length {
            RunLength::Epochs(wanted) => {
                let least = epochs(done / per_epoch + 1);
                ("epochs", wanted, wanted.saturating_mul(per_epoch), least)
            }
            RunLength::Steps(wanted) => ("steps", wanted, wanted, steps(done + 1)),
        };
        if all <= done {
            let (done, each) = (steps(done), format_count(per_epoch));
            let problem = format!(
                "the run has already trained {done}, with {each} per epoch; choose at least {least} in all"
            );
            return Err(invalid_setting(key, value, problem));
        }
        let config = length.applied_to(self.config.clone(), all);
        config.validate()?;
        let warmup = config.warmup_fraction.unwrap_or_default();
        Ok(Plan {
            steps: all,
            warmup_steps: warmup_steps(all, warmup),
            compression: self.compression.map(|compression| Compression {
                steps: all,
                ..compression
            }),
            config,
            ..self
        })
    }

    /// How the learning rate changes over the run.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule {
            peak: self.learning_rate,
            warmup: self.warmup_steps,
            steps: self.steps,
            lr_schedule: self.lr_schedule,
        }
    }
}

/// A change of the length of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LengthChange {
    pub length: RunLength,
    /// Steps and epochs before and after.
    steps: (u64, u64),
    epochs: (u64, u64),
    /// Learning rate of the newest step, and of the one that follows.
    learning_rate: (f64, f64),
}

impl LengthChange {
    /// The change from one plan to another, of which `done` steps are trained.
    pub fn new(length: RunLength, before: &Plan, after: &Plan, done: u64) -> Self {
        let last = done.saturating_sub(1);
        LengthChange {
            length,
            steps: (before.steps, after.steps),
            epochs: (before.epochs(), after.epochs()),
            learning_rate: (before.schedule().rate(last), after.schedule().rate(done)),
        }
    }

    /// The config of the run folder with the new length. Its other settings stay as they are.
    pub fn applied_to(&self, config: RunConfig) -> RunConfig {
        self.length.applied_to(config, self.steps.1)
    }

    /// What changes, for the events of the run.
    pub fn describe(&self) -> String {
        let end = |all, passes| format!("{} ({})", steps(all), epochs(passes));
        format!(
            "the run now ends after {} instead of {}; the learning rate changes from {:.1e} to {:.1e}, because it now follows the schedule of a run of this length",
            end(self.steps.1, self.epochs.1),
            end(self.steps.0, self.epochs.0),
            self.learning_rate.0,
            self.learning_rate.1,
        )
    }
}

fn epochs(count: u64) -> String {
    counted(count, "epoch", "epochs")
}

fn steps(count: u64) -> String {
    counted(count, "step", "steps")
}
