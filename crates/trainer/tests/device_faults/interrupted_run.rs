//! One run with its interruptions, and what it left: checkpoints, evaluations and predictions.

use crate::fault_schedule::{STEPS, Schedule};
use crate::temporary_folder::temporary_folder;
use crate::trained_model_usage::Usage;
use crate::training_setups::Scenario;
use runlog::{RunEvent, RunFolder, RunStore, StopReason};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tape::fault_injection::{Injection, ScheduledFault};
use tempfile::TempDir;
use trainer::internals::checkpoint;
use trainer::{
    Control, Machine, MemoryScript, Replay, Request, Result, RunContext, RunOutcome, ScriptBy,
    TrainError,
};

/// Sessions after which a run should be at its end.
const MOST_SESSIONS: usize = 60;

/// What a run left behind.
#[derive(Default)]
pub struct Record {
    /// Hash of weights, optimizer state and average in the checkpoint of each step. Several if a
    /// step was saved several times with different values, which is wrong.
    pub checkpoints: BTreeMap<u64, Vec<u64>>,
    /// Loss and score after each evaluated step.
    pub evaluations: BTreeMap<u64, Vec<f64>>,
    /// Micro-batches of each step.
    pub micro_batches: BTreeMap<u64, Vec<u32>>,
    /// Loss of each step.
    pub losses: BTreeMap<u64, f64>,
    /// The hash of the result of each use of the trained model.
    pub used: BTreeMap<Usage, u64>,
    /// The step whose checkpoint was used: the best one of those that could be saved.
    pub used_step: Option<u64>,
    /// Dispatches of all sessions.
    pub dispatches: u64,
    /// Dispatches of the uses after the training.
    pub usage_dispatches: u64,
    /// Duration in milliseconds.
    pub ms: f64,
    /// Errors that ended sessions, with the step of the newest checkpoint and its hash then.
    pub errors: Vec<EndedByError>,
    /// Warnings of the run.
    pub warnings: Vec<String>,
    pub events: Vec<RunEvent>,
    pub happened: Vec<ScheduledFault>,
    pub garbage_results: u64,
    has_something_to_save: bool,
    /// Why the run never came to its end.
    pub unfinished: Option<String>,
}

/// A session that ended with an error.
pub struct EndedByError {
    pub error: String,
    pub code: &'static str,
    /// Step and hash of the newest valid checkpoint.
    pub checkpoint: Option<(u64, u64)>,
    /// The run had written a checkpoint or done a step.
    pub had_something_to_save: bool,
}

/// The hash of the lengths and checksums of a checkpoint's tensor files.
fn hash(checkpoint: &Path) -> Option<u64> {
    let state = std::fs::read(checkpoint.join("state.json")).ok()?;
    let state: serde_json::Value = serde_json::from_slice(&state).ok()?;
    let mut files: Vec<_> = state.get("files")?.as_object()?.iter().collect();
    files.sort_by_key(|(name, _)| *name);
    let mut hasher = DefaultHasher::new();
    files.iter().for_each(|(name, sum)| {
        hasher.write(name.as_bytes());
        hasher.write(sum.to_string().as_bytes());
    });
    Some(hasher.finish())
}

/// Copies the files of a folder without sub-folders.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// A run in progress.
struct Sessions<'a> {
    scenario: &'a Scenario,
    schedule: &'a Schedule,
    replay: Option<Replay>,
    /// Every step is saved.
    saves_every_step: bool,
    /// Uses the checkpoint of this step instead of the best one.
    uses_step: Option<u64>,
    folder: TempDir,
    run: RunFolder,
    record: Record,
    stopped: bool,
}

impl Sessions<'_> {
    fn context(&self, control: &Control) -> RunContext {
        RunContext {
            control: control.clone(),
            machine: Machine {
                script: Some(MemoryScript {
                    path: self.scenario.script.clone(),
                    by: ScriptBy::Decision,
                }),
                ..Machine::default()
            },
            replay: self.replay.clone(),
            ..RunContext::default()
        }
    }

    /// Starts the run, or resumes it if it has a checkpoint.
    fn session(&mut self) -> Result<RunOutcome> {
        let control = Control::default();
        let context = self.context(&control);
        let _asker = self
            .schedule
            .saves_within_steps
            .then(|| Asker::new(&control));
        let (uses_step, kept) = (self.uses_step, self.kept_checkpoint());
        let (run, record) = (self.run.clone(), &mut self.record);
        let stop_after = self.schedule.stop_after.filter(|_| !self.stopped);
        let stopped = &mut self.stopped;
        let saves_every_step = self.saves_every_step;
        if saves_every_step && record.events.is_empty() {
            control.send(Request::Checkpoint);
        }
        let mut observer = |event: &RunEvent| {
            record.observe(&run.path, event);
            if let RunEvent::Checkpoint { step, path, .. } = event
                && uses_step == Some(*step)
            {
                copy_files(&run.path.join(path), &kept.join(path));
            }
            if let RunEvent::Step { step, .. } = event {
                if stop_after.is_some_and(|after| *step >= after) && !*stopped {
                    *stopped = true;
                    control.send(Request::Stop);
                }
                if saves_every_step || step.is_multiple_of(2) {
                    control.send(Request::Checkpoint);
                }
            }
        };
        if checkpoint::newest(&run).is_ok() {
            return trainer::resume_to(&run, None, context, &mut observer);
        }
        let plan = self.scenario.plan(self.schedule.automatic);
        let found = self.scenario.found.clone();
        trainer::start(plan, found, &run, context, &mut observer)
    }

    /// Trains to the end, through every error.
    fn train(&mut self) {
        for _ in 0..MOST_SESSIONS {
            match self.session() {
                Ok(outcome) if outcome.reason == StopReason::Finished => return,
                Ok(outcome) if outcome.reason == StopReason::Requested => {}
                Ok(outcome) => {
                    self.record.unfinished = Some(format!("it stopped: {:?}", outcome.reason));
                    return;
                }
                Err(error) => self.note(&error),
            }
            if checkpoint::newest(&self.run).is_err() {
                self.run = new_run(&self.folder);
                self.record.has_something_to_save = false;
            }
        }
        self.record.unfinished = Some(format!("no end after {MOST_SESSIONS} sessions"));
    }

    fn note(&mut self, error: &TrainError) {
        let newest = checkpoint::newest(&self.run).ok();
        let newest = newest.and_then(|(loaded, _)| Some((loaded.state.step, hash(&loaded.path)?)));
        self.record.errors.push(EndedByError {
            error: error.to_string(),
            code: error.code(),
            checkpoint: newest,
            had_something_to_save: self.record.has_something_to_save,
        });
    }

    /// Where the checkpoint of `uses_step` is kept, because the run may remove it.
    fn kept_checkpoint(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    /// Leaves the checkpoint of `uses_step` as the only one of the run.
    fn restore_kept_checkpoint(&self) {
        std::fs::remove_dir_all(self.run.checkpoints_path()).unwrap();
        let kept = self.kept_checkpoint().join("checkpoints");
        std::fs::rename(kept, self.run.checkpoints_path()).unwrap();
    }

    /// Uses the trained model, each time until the device does it without an error.
    fn use_model(&mut self) {
        if self.uses_step.is_some() {
            self.restore_kept_checkpoint();
        }
        let used = checkpoint::best(&self.run).ok();
        self.record.used_step = used.map(|checkpoint| checkpoint.state.step);
        for &usage in Usage::all(self.scenario.plan(false).task()) {
            let exports = self.folder.path().to_owned();
            let used = (0..MOST_SESSIONS).find_map(|_| {
                let used = usage.perform(self.scenario, &self.run, &exports);
                used.map_err(|error| self.note(&error)).ok()
            });
            match used {
                Some(hash) => drop(self.record.used.insert(usage, hash)),
                None => self.record.unfinished = Some(format!("{usage:?} came to no end")),
            }
        }
    }
}

/// A user who asks for checkpoints, at any moment, until it is dropped.
struct Asker {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asker {
    fn new(control: &Control) -> Self {
        let (control, ended) = (control.clone(), Arc::new(AtomicBool::new(false)));
        let until = ended.clone();
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                control.send(Request::Checkpoint);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Asker {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Record {
    /// Dispatches before the trained model was used.
    pub fn training_dispatches(&self) -> u64 {
        self.dispatches - self.usage_dispatches
    }

    fn observe(&mut self, run: &Path, event: &RunEvent) {
        self.has_something_to_save |=
            matches!(event, RunEvent::Checkpoint { .. } | RunEvent::Step { .. });
        match event {
            RunEvent::Checkpoint { step, path, .. } => {
                let found = hash(&run.join(path)).unwrap();
                let all = self.checkpoints.entry(*step).or_default();
                if !all.contains(&found) {
                    all.push(found);
                }
            }
            RunEvent::Evaluation {
                step,
                loss,
                metrics,
                ..
            } => {
                let values = metrics.values().copied().chain([*loss]).collect();
                self.evaluations.insert(*step, values);
            }
            RunEvent::Step {
                step,
                loss,
                micro_batches,
                ..
            } => {
                self.micro_batches.insert(*step, micro_batches.clone());
                self.losses.insert(*step, *loss);
            }
            RunEvent::Warning { code, message, .. } => {
                self.warnings.push(format!("{code}: {message}"));
            }
            _ => {}
        }
        self.events.push(event.clone());
    }
}

fn new_run(folder: &TempDir) -> RunFolder {
    let store = RunStore::open(folder.path().join("runs"));
    store.create("run").unwrap()
}

fn played(
    scenario: &Scenario,
    schedule: &Schedule,
    replay: Option<Replay>,
    saves_every_step: bool,
    uses_step: Option<u64>,
) -> Record {
    let began = Instant::now();
    let injection = Injection::install(schedule.faults.clone(), schedule.seed);
    let folder = temporary_folder();
    let mut sessions = Sessions {
        scenario,
        schedule,
        replay,
        saves_every_step,
        uses_step,
        run: new_run(&folder),
        folder,
        record: Record::default(),
        stopped: false,
    };
    sessions.train();
    let trained = injection.dispatches();
    injection.add(&schedule.usage_faults);
    if schedule.uses_model && sessions.record.unfinished.is_none() {
        sessions.use_model();
    }
    let mut record = sessions.record;
    record.usage_dispatches = injection.dispatches() - trained;
    record.ms = began.elapsed().as_secs_f64() * 1000.0;
    record.dispatches = injection.dispatches();
    record.happened = injection.happened();
    record.garbage_results = injection.garbage_results();
    record
}

/// The run with its faults.
pub fn disturbed(scenario: &Scenario, schedule: &Schedule) -> Record {
    played(scenario, schedule, None, false, None)
}

/// The run without faults, which saves every step.
pub fn undisturbed(scenario: &Scenario) -> Record {
    let record = played(scenario, &Schedule::calm(false), None, true, None);
    assert_eq!(record.unfinished, None);
    assert!(record.errors.is_empty());
    assert_eq!(record.checkpoints.len() as u64, STEPS + 1);
    record
}

/// The run without faults in the micro-batches of a recorded one. Its trained model is that of
/// `uses_step`, or else the best one.
pub fn repeated(
    scenario: &Scenario,
    schedule: &Schedule,
    events: &[RunEvent],
    uses_step: Option<u64>,
) -> Record {
    let calm = Schedule {
        uses_model: schedule.uses_model,
        ..Schedule::calm(schedule.automatic)
    };
    let replay = Replay::from_events(events);
    played(scenario, &calm, Some(replay), true, uses_step)
}
