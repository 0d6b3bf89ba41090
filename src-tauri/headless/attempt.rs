//! One training that is tried out: what it said, kept for whoever asked. The run goes to the store or to a folder that is
//! removed.

use super::args::Script;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::train::{look_at, machine, total_bytes};
use dataset::DetectedDataset;
use runlog::{RunConfig, RunEvent, RunFolder, RunStore};
use std::path::Path;
use trainer::forecast::settle;
use trainer::{Control, Flight, Plan, TrainError};

/// What was tried, and all it said.
pub struct Attempt {
    /// Its checked config.
    pub plan: Plan,
    /// Its run folder.
    pub run: RunFolder,
    /// Every event.
    pub events: Vec<RunEvent>,
    /// Why it failed, where it did.
    pub failed: Option<TrainError>,
}

/// Looks at the folder of a config as a training would.
pub fn look(config: &RunConfig, folder: &Path) -> Result<DetectedDataset, Failure> {
    look_at(folder, config)
}

/// Trains as `config` says on what was found. `heard` sees every event, and may ask the run to stop. A run that fails gives what
/// it said until then; a config that cannot be a plan is an error.
pub fn train(
    config: &RunConfig,
    found: &DetectedDataset,
    (store, name): (&RunStore, Option<&str>),
    at_work: &AtWork,
    mut heard: impl FnMut(&RunEvent, &Control) + Send,
) -> Result<Attempt, Failure> {
    let machine = machine(&Script::default());
    let total_bytes = config
        .memory_cap_fraction
        .map_or(0, |_| total_bytes(&machine));
    let plan = settle(config, found, total_bytes)?;
    plan.expect_computable()?;
    let run = store.create(name.unwrap_or(&plan.name))?;
    let control = at_work.next();
    let flight = Flight {
        control: control.clone(),
        machine,
        replay: None,
    };
    let mut events = Vec::new();
    let ended = trainer::start(plan.clone(), found.clone(), &run, flight, &mut |event| {
        heard(event, &control);
        events.push(event.clone());
    });
    Ok(Attempt {
        plan,
        run,
        events,
        failed: ended.err(),
    })
}
