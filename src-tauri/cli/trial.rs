//! One training of a search over settings, and all its events.

use super::args::Script;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::train::{look_at, machine, total_bytes};
use dataset::DetectedDataset;
use runlog::{RunConfig, RunEvent, RunFolder, RunStore};
use std::path::Path;
use trainer::estimate::plan_within_cap;
use trainer::{Control, Plan, RunContext, TrainError};

/// The outcome of one training.
pub struct Attempt {
    pub plan: Plan,
    pub run: RunFolder,
    /// All events of the run, even if the run failed.
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
    look_at(folder, config)
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
    let plan = plan_within_cap(config, found, total_bytes)?;
    plan.check_precision()?;
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
