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
    /// Every event, also of a run that failed.
    pub events: Vec<RunEvent>,
    /// Why the training failed, if it did.
    pub failed: Option<TrainError>,
}

/// Where a run is stored.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub store: &'a RunStore,
    /// The plan's name by default.
    pub name: Option<&'a str>,
}

/// Inspects the folder of a config as a run would.
pub fn inspect(config: &RunConfig, folder: &Path) -> Result<DetectedDataset, Failure> {
    look_at(folder, config)
}

/// Trains as `config` says. Calls `on_event` for every event; it may ask the run to stop. A run
/// that fails gives its events until then; a config that is refused is an error.
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
