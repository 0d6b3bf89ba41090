//! What must hold at the next start, whatever happened to the disk before.

use crate::scenario::{EXPORT, Scenario, Story, export, files, sums};
use disk::simulated::SimulatedDisk;
use runlog::{RunEvent, RunFolder, RunStore, read_events};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trainer::Results;
use trainer::internals::checkpoint;

/// What is known of a run when it is opened again.
pub struct Expected<'a> {
    /// The run without disturbances.
    pub calm: &'a Story,
    /// The files of the export if it is there.
    pub exported: &'a Option<BTreeMap<String, Vec<u8>>>,
    /// The newest checkpoint that was reported to be saved; 0 if none was.
    pub saved: u64,
    /// The last step that was done.
    pub step: u64,
    /// The user was told that the run has begun.
    pub has_begun: bool,
    /// Once the run has ended, its best checkpoint is that of the best evaluation. The results are
    /// of the same one, unless the user was told that they could not be saved.
    pub best: Option<Best>,
}

/// The best evaluation of a run.
#[derive(Clone, Copy)]
pub struct Best {
    pub step: u64,
    pub has_results: bool,
}

/// Opens the runs below `root` again. `resumes` trains the run to its end and exports it.
///
/// # Errors
/// What is lost or stuck.
pub fn next_start(
    scenario: &Scenario,
    disk: &SimulatedDisk,
    root: &Path,
    expected: &Expected,
    resumes: bool,
) -> Result<(), String> {
    let exported = root.join(EXPORT);
    if exported.is_dir() && Some(files(&exported)) != *expected.exported {
        return Err("the exported folder is incomplete".to_owned());
    }
    let runs = RunStore::open(root.join("runs"))
        .list()
        .map_err(|e| e.to_string())?;
    let Some(run) = runs.first() else {
        return if expected.has_begun {
            Err("the run is lost".to_owned())
        } else {
            Ok(())
        };
    };
    run.replay()
        .map_err(|error| format!("the run cannot be opened: {error}"))?;
    run.crash_report()
        .map_err(|error| format!("no crash report: {error}"))?;
    if expected.has_begun {
        let events = read_events(&run.events_path()).map_err(|error| error.to_string())?;
        if !matches!(events.first(), Some(RunEvent::Started(_))) {
            return Err("its first event is lost".to_owned());
        }
        run.config()
            .map_err(|error| format!("no config: {error}"))?;
        trainer::RunDataset::read(run).map_err(|error| format!("no manifest: {error}"))?;
    }
    // The rest is for the process that resumes the run.
    let claim = run
        .claim()
        .map_err(|error| format!("a stuck lock: {error}"))?;
    checkpoint::recover(run).map_err(|error| error.to_string())?;
    drop(claim);
    check_checkpoint(scenario, run, expected)?;
    no_leftovers(&run.path)?;
    if resumes && expected.saved > 0 {
        let finished = scenario
            .finish(run, disk)
            .map_err(|error| error.to_string())?;
        if finished.as_ref() != expected.calm.sums.get(&scenario.steps) {
            return Err("the resumed run has other weights".to_owned());
        }
        if let Some(best) = expected.best {
            check_best(run, best)?;
        }
        export(run, root).map_err(|error| error.to_string())?;
        no_leftovers(root)?;
    }
    Ok(())
}

/// The newest checkpoint is whole, has the right weights, and is at most one interval old.
fn check_checkpoint(
    scenario: &Scenario,
    run: &RunFolder,
    expected: &Expected,
) -> Result<(), String> {
    let newest = match checkpoint::newest(run) {
        Ok((newest, _)) => newest,
        Err(_) if expected.saved == 0 && expected.step <= scenario.interval => return Ok(()),
        Err(error) => return Err(format!("step {} was saved: {error}", expected.saved)),
    };
    let step = newest.state.step;
    if step < expected.saved || step + scenario.interval < expected.step {
        return Err(format!(
            "step {} was saved and step {} was done, but the newest checkpoint is from step {step}",
            expected.saved, expected.step
        ));
    }
    if let Some((_, best)) = newest.state.best
        && checkpoint::verify(&run.path.join(RunFolder::checkpoint_name(best))).is_err()
    {
        return Err(format!("the best checkpoint, of step {best}, is lost"));
    }
    let calm = expected.calm.sums.get(&step);
    if calm.is_some() && sums(&newest.path).as_ref() != calm {
        return Err(format!("the checkpoint of step {step} has other weights"));
    }
    Ok(())
}

/// The best checkpoint and the results are those of the best evaluation of a run that has ended.
fn check_best(run: &RunFolder, expected: Best) -> Result<(), String> {
    let best = checkpoint::best(run).map_err(|error| error.to_string())?;
    let newest = checkpoint::newest(run).map_err(|error| error.to_string())?;
    let named = newest.0.state.best.map(|(_, step)| step);
    if best.state.step != expected.step || named != Some(expected.step) {
        return Err(format!(
            "the best checkpoint is from step {}, and the newest names {named:?}, not {}",
            best.state.step, expected.step
        ));
    }
    let results = Results::load(run).map_err(|error| error.to_string())?;
    let step = results.map(|results| results.report.step);
    if expected.has_results && step != Some(expected.step) {
        return Err(format!(
            "the results are of step {step:?}, not of {}",
            expected.step
        ));
    }
    Ok(())
}

/// No temporary name is left.
pub fn no_leftovers(folder: &Path) -> Result<(), String> {
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with('.') || name.ends_with(".new") || name.ends_with(".draft") {
                return Err(format!("a leftover: {}", entry.path().display()));
            }
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}
