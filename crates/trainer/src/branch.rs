//! A branch: a new run that starts from the weights of another one, with other settings. It uses
//! the same samples and the same split, so that no held-out sample was trained on before.

use crate::branch_weights::BranchWeights;
use crate::checkpoint;
use crate::data::{MAX_TOKENIZER_BYTES, TOKENIZER};
use crate::error::{Result, TrainError, at};
use crate::event_log::Observer;
use crate::plan::Plan;
use crate::pretrained;
use crate::run_context::{RunContext, RunOutcome};
use crate::sample_manifest;
use crate::train::start_from;
use dataset::DetectedDataset;
use runlog::{Group, RunConfig, RunFolder, SETTINGS};
use std::path::PathBuf;

/// The checkpoint that a branch starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchFrom {
    /// That of the best evaluation.
    Best,
    /// The newest one.
    Newest,
}

/// A new run that has been checked, and not yet started.
pub struct Branch {
    /// What it does.
    pub plan: Plan,
    found: DetectedDataset,
    start: BranchWeights,
    /// The learned vocabulary of the other run, if it has one.
    tokenizer: PathBuf,
}

impl Branch {
    /// Checks a branch of `origin`: its config with the settings of `changes`.
    ///
    /// # Errors
    /// [`TrainError::Setting`] if a setting would make the weights useless or does not work; the
    /// run has no checkpoint.
    pub fn open(origin: &RunFolder, from: BranchFrom, changes: RunConfig) -> Result<Branch> {
        check_changes(&changes)?;
        let config = changes.over(pretrained::config_of(origin)?);
        let found = sample_manifest::read(origin)?;
        let loaded = match from {
            BranchFrom::Best => checkpoint::best(origin)?,
            BranchFrom::Newest => checkpoint::newest(origin)?.0,
        };
        Ok(Branch {
            plan: Plan::resolve(&config, &found)?,
            found,
            start: BranchWeights {
                from: format!("{}, step {}", origin.id(), loaded.state.step),
                loaded,
            },
            tokenizer: origin.path.join(TOKENIZER),
        })
    }

    /// The run and the step whose weights it starts from.
    pub fn origin(&self) -> &str {
        &self.start.from
    }

    /// Trains it in `run` and blocks until it ends. `observer` receives every event.
    ///
    /// # Errors
    /// [`TrainError::TensorMismatch`] if a setting changed the shape of the network.
    pub fn train(
        self,
        run: &RunFolder,
        context: RunContext,
        observer: Observer,
    ) -> Result<RunOutcome> {
        if self.tokenizer.exists() {
            // Its tokens have the numbers that the embeddings were trained with.
            let copy = run.path.join(TOKENIZER);
            let json = disk::read_limited(&self.tokenizer, MAX_TOKENIZER_BYTES);
            let json = json.map_err(at(&self.tokenizer))?;
            disk::write_atomic(&copy, &json).map_err(at(&copy))?;
        }
        start_from(
            self.plan,
            self.found,
            Some(&self.start),
            run,
            context,
            observer,
        )
    }
}

/// Refuses settings that decide what the weights mean, or which samples were held out.
fn check_changes(changes: &RunConfig) -> Result<()> {
    let changed = serde_json::to_value(changes).unwrap_or_default();
    for setting in SETTINGS {
        let resized = ["image_size", "tokens"].contains(&setting.key);
        let is_fixed = matches!(setting.group, Group::Model | Group::Data)
            || ["dev_samples", "policy"].contains(&setting.key);
        if let Some(value) = changed.get(setting.key)
            && is_fixed
            && !resized
        {
            return Err(TrainError::Setting {
                key: setting.key,
                value: value.to_string().trim_matches('"').to_owned(),
                allowed: "the network, the samples and the split cannot change in a branch, because the branch continues with the weights of the first run; to change one of them, start a new run with `ebb train`".to_owned(),
            });
        }
    }
    Ok(())
}
