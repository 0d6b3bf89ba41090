//! One training of a search over settings, and all its events.

use super::args::Script;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::read_folder::read_folder;
use super::scripted_machine::{machine, total_bytes};
use dataset::DetectedDataset;
use runlog::{BaselineChoice, RunConfig, RunEvent, RunFolder, RunStore};
use std::path::Path;
use trainer::{Control, Plan, RunContext, RunLength, TrainError};

/// The outcome of one training.
pub struct Attempt {
    pub plan: Plan,
    pub run: RunFolder,
    /// All events of the run, even if the run failed.
    pub events: Vec<RunEvent>,
    /// Why the training failed, if it did.
    pub failed: Option<TrainError>,
}

/// A run that was trained on, to another length.
pub struct Continued {
    /// The events since it was continued, even if it failed.
    pub events: Vec<RunEvent>,
    /// Why the training failed, if it did.
    pub failed: Option<TrainError>,
}

/// Where a run is stored.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub store: &'a RunStore,
    /// Name of the run; if `None`, the plan's name.
    pub name: Option<&'a str>,
}

/// Inspects a folder as `ebb train` does with this config.
pub fn inspect(config: &RunConfig, folder: &Path) -> Result<DetectedDataset, Failure> {
    Ok(read_folder(folder, config)?)
}

/// The config without a baseline, unless it asks for one: a search compares networks with each
/// other.
pub fn without_baseline(config: RunConfig) -> RunConfig {
    RunConfig {
        baseline: config.baseline.or(Some(BaselineChoice::None)),
        ..config
    }
}

/// Trains as `config` says. Calls `on_event` for every event; `on_event` may ask the run to stop.
/// If the run fails, the result has the events before the failure. If the config is refused, the
/// result is an error.
pub fn train(
    config: &RunConfig,
    found: &DetectedDataset,
    place: Place,
    at_work: &AtWork,
    mut on_event: impl FnMut(&RunEvent, &Control) + Send,
) -> Result<Attempt, Failure> {
    let machine = machine(&Script::default());
    let total_bytes = config
        .memory_cap_fraction
        .map_or(0, |_| total_bytes(&machine));
    let plan = Plan::within_cap(config, found, total_bytes, 1)?;
    plan.check_start()?;
    let run = place.store.create(place.name.unwrap_or(&plan.name))?;
    let control = at_work.next();
    let context = RunContext {
        control: control.clone(),
        machine,
        ..RunContext::default()
    };
    let mut events = Vec::new();
    let ended = trainer::start(plan.clone(), found.clone(), &run, context, &mut |event| {
        on_event(event, &control);
        events.push(event.clone());
    });
    Ok(Attempt {
        plan,
        run,
        events,
        failed: ended.err(),
    })
}

/// Trains a run of [`train`] on, until it has this length. Calls `on_event` as [`train`] does.
pub fn resume(
    run: &RunFolder,
    length: RunLength,
    at_work: &AtWork,
    mut on_event: impl FnMut(&RunEvent, &Control) + Send,
) -> Continued {
    let control = at_work.next();
    let context = RunContext {
        control: control.clone(),
        machine: machine(&Script::default()),
        ..RunContext::default()
    };
    let mut events = Vec::new();
    let ended = trainer::resume_to(run, Some(length), context, &mut |event| {
        on_event(event, &control);
        events.push(event.clone());
    });
    Continued {
        events,
        failed: ended.err(),
    }
}
