//! What the disk disturbs: a run that is started, saves, evaluates, removes old checkpoints, stops,
//! resumes and ends, its notes, its report, an export, and a run folder that is removed.

use crate::check::Best;
use crate::noise_images::write_noise_images;
use crate::temporary_folder::temporary_folder;
use dataset::{DetectedDataset, InspectOptions, TextOptions, detect};
use disk::simulated::SimulatedDisk;
use pressure::Change;
use runlog::{
    Augmentation, CheckpointInterval, CheckpointReason, DeviceChoice, RunConfig, RunEvent,
    RunFolder, RunNotes, RunStore,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use trainer::{
    Control, DevicePreference, ExportFormat, Machine, MemoryScript, Plan, Request, Result,
    RunContext, RunOutcome, ScriptBy, TrainError, TrainedModel,
};

/// Optimizer steps of the run.
pub const STEPS: u64 = 6;
/// Steps between two checkpoints.
pub const INTERVAL: u64 = 2;
/// The user stops the run after this step.
const STOP_AFTER: u64 = 5;

/// Longer than a session may save without counting the time. The next checkpoint would then have to
/// wait for more than a minute.
pub const SLOW_WRITE: Duration = Duration::from_millis(2_100);

/// Where the model is exported.
pub const EXPORT: &str = "exports/birds";

/// Length and checksum of each tensor file of a checkpoint.
pub type Sums = BTreeMap<String, (u64, u32)>;

/// A dataset with tiny pretrained weights.
pub struct Scenario {
    pub found: DetectedDataset,
    /// Whether the report is drawn, which takes longer than everything else.
    draws_report: bool,
    config: RunConfig,
    /// Optimizer steps of the run.
    pub steps: u64,
    /// Steps between two checkpoints.
    pub interval: u64,
    /// The user stops the run after this step.
    pub stop_after: u64,
    /// After these steps the user asks for a checkpoint, which is slow.
    slow_after: Vec<u64>,
    /// After this step the user pauses, and continues at once.
    pause_after: Option<u64>,
    /// The memory script: nothing else needs memory.
    script: PathBuf,
    folder: TempDir,
}

/// A file that was reported to be written or removed.
pub struct Fact {
    /// Its name in the run folder.
    pub file: &'static str,
    pub exists: bool,
    /// It is true from this number of changes of the disk on.
    pub from: usize,
    /// Up to this one.
    pub until: usize,
}

/// What a user saw.
#[derive(Default)]
pub struct Story {
    /// For each checkpoint that was reported: the changes of the disk before, and its step.
    pub saved: Vec<(usize, u64)>,
    /// Why these were saved.
    pub reasons: Vec<CheckpointReason>,
    /// Steps of the evaluations that were the best so far.
    pub best: Vec<u64>,
    /// The changes of the disk before each step, and the step.
    pub steps: Vec<(usize, u64)>,
    /// Changes of the disk before the run was reported to have begun.
    pub begun: Option<usize>,
    /// The tensors of each checkpoint.
    pub sums: BTreeMap<u64, Sums>,
    /// The files of the export, if it succeeded.
    pub exported: Option<BTreeMap<String, Vec<u8>>>,
    /// What was reported to be done to files.
    pub facts: Vec<Fact>,
    pub errors: Vec<String>,
    /// Codes of the warnings.
    pub warnings: Vec<String>,
    /// What should not have happened.
    pub complaints: Vec<String>,
}

/// The sums that a checkpoint lists.
pub fn sums(checkpoint: &Path) -> Option<Sums> {
    let state = fs::read(checkpoint.join("state.json")).ok()?;
    let state: serde_json::Value = serde_json::from_slice(&state).ok()?;
    serde_json::from_value(state.get("files")?.clone()).ok()
}

/// All files below a folder with their content.
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

impl Scenario {
    pub fn new(draws_report: bool) -> Scenario {
        let folder = temporary_folder();
        let data = folder.path().join("data");
        write_noise_images(&data, 7, 16);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = folder.path().join("script");
        let line = r#"{"at_ms":0,"total_bytes":16000000000,"others_bytes":1000000000}"#;
        fs::write(&script, line).unwrap();
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        Scenario {
            found: detect(&data, &options, &texts, &|_| {}).unwrap(),
            draws_report,
            config: RunConfig {
                from: Some(here.join("../models/tests/fixtures/published/vit")),
                image_size: Some(16),
                augment: Some(Augmentation::None),
                ema_decay: Some(0.5),
                steps: Some(STEPS),
                effective_batch: Some(4),
                micro_batch: Some(2),
                evaluate_every_epochs: Some(1),
                checkpoint_every: Some(CheckpointInterval::Steps(INTERVAL)),
                device: Some(DeviceChoice::Cpu),
                threads: Some(1),
                workers: Some(0),
                ..RunConfig::default()
            },
            steps: STEPS,
            interval: INTERVAL,
            stop_after: STOP_AFTER,
            slow_after: Vec::new(),
            pause_after: None,
            script,
            folder,
        }
    }

    /// A language model with adapters, fine-tuned on a short text.
    pub fn texts_with_adapters() -> Scenario {
        let mut scenario = Scenario::new(false);
        let text = scenario.folder.path().join("story.txt");
        let lines = (0..60).map(|n| format!("The {n} small birds sang and then flew away.\n"));
        fs::write(&text, lines.collect::<String>()).unwrap();
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        scenario.found = detect(&text, &options, &texts, &|_| {}).unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        scenario.config = RunConfig {
            from: Some(here.join("../models/tests/fixtures/published/chat")),
            adapter_rank: Some(2),
            tokens: Some(16),
            image_size: None,
            augment: None,
            ema_decay: None,
            ..scenario.config
        };
        scenario
    }

    /// A language model of which each evaluation is the best one so far. The first checkpoint of
    /// each session takes so long that those of the best evaluations wait in memory. One waits when
    /// a checkpoint is due, when the run stops, when it pauses and at its last evaluation.
    pub fn with_best_ones_that_wait() -> Scenario {
        let mut scenario = Scenario::texts_with_adapters().with_steps(13, 5);
        scenario.config = RunConfig {
            effective_batch: Some(8_192),
            micro_batch: Some(64),
            learning_rate: Some(1e-3),
            evaluate_every_epochs: Some(1),
            ..scenario.config
        };
        scenario.stop_after = 7;
        scenario.slow_after = vec![1, 8];
        scenario.pause_after = Some(9);
        scenario
    }

    /// The best evaluation waits in memory until the run has trained to its end.
    pub fn with_best_one_that_waits_to_the_end() -> Scenario {
        let mut scenario = Scenario::new(false).with_steps(STEPS, 1_000);
        scenario.config.evaluate_every_epochs = Some(1);
        scenario.stop_after = STEPS;
        scenario.slow_after = vec![1];
        scenario
    }

    /// The settings of the run.
    pub fn config(&self) -> RunConfig {
        self.config.clone()
    }

    pub fn plan(&self) -> Plan {
        Plan::resolve(&self.config, &self.found).unwrap()
    }

    pub fn context(&self, control: &Control) -> RunContext {
        RunContext {
            control: control.clone(),
            machine: Machine {
                script: Some(MemoryScript {
                    path: self.script.clone(),
                    by: ScriptBy::Decision,
                }),
                ..Machine::default()
            },
            ..RunContext::default()
        }
    }

    /// What the user asks for after a step of a session that ends with step `until`.
    fn ask_after(&self, step: u64, until: u64, control: &Control, disk: &SimulatedDisk) {
        if self.slow_after.contains(&step) {
            disk.delay_sync(SLOW_WRITE);
            control.send(Request::Checkpoint);
        }
        if self.pause_after == Some(step) {
            control.send(Request::Pause);
        }
        if step == until && until < self.steps {
            control.send(Request::Stop);
        }
    }

    /// Starts a run, or resumes it, until a step. Adds what the user sees to `story`.
    fn session(
        &self,
        run: &RunFolder,
        disk: &SimulatedDisk,
        story: &mut Story,
        resumes: bool,
        until: u64,
    ) -> Result<RunOutcome> {
        let control = Control::default();
        let (mut is_training, mut reached) = (false, false);
        let mut observer = |event: &RunEvent| match event {
            RunEvent::Started(_) => story.begun = Some(disk.changes()),
            RunEvent::Step { step, .. } => {
                story.steps.push((disk.changes(), *step));
                is_training = true;
                reached |= *step == until;
                self.ask_after(*step, until, &control, disk);
            }
            RunEvent::Decision { decision, .. } if decision.change == Change::Pause => {
                control.send(Request::Resume);
            }
            RunEvent::Evaluation { step, best, .. } if *best => story.best.push(*step),
            RunEvent::Checkpoint {
                step, path, reason, ..
            } => {
                story.saved.push((disk.changes(), *step));
                story.reasons.push(*reason);
                match sums(&run.path.join(path)) {
                    Some(sums) => drop(story.sums.insert(*step, sums)),
                    None => story.complaints.push(format!("{path} has no sums")),
                }
            }
            RunEvent::Warning { code, .. } => story.warnings.push(code.clone()),
            _ => {}
        };
        let context = self.context(&control);
        let outcome = if resumes {
            trainer::resume_to(run, None, context, &mut observer)
        } else {
            trainer::start(self.plan(), self.found.clone(), run, context, &mut observer)
        };
        if is_training && !reached {
            story
                .complaints
                .push(format!("it did not train to step {until}"));
        }
        outcome
    }

    /// Trains a new run until the user stops it.
    pub fn start(&self, run: &RunFolder, disk: &SimulatedDisk, story: &mut Story) -> Result<()> {
        self.session(run, disk, story, false, self.stop_after)
            .map(|_| ())
    }

    /// Trains a run to its end.
    pub fn resume(&self, run: &RunFolder, disk: &SimulatedDisk, story: &mut Story) -> Result<()> {
        self.session(run, disk, story, true, self.steps).map(|_| ())
    }

    /// A training of other length, without evaluations before its end.
    pub fn with_steps(mut self, steps: u64, interval: u64) -> Self {
        (self.steps, self.interval) = (steps, interval);
        self.config.steps = Some(steps);
        self.config.checkpoint_every = Some(CheckpointInterval::Steps(interval));
        self.config.evaluate_every_epochs = Some(1_000);
        self
    }

    /// The same training on a machine where other apps take all memory once, after this many
    /// decisions.
    pub fn with_shortage_after(mut self, decisions: u64) -> Self {
        let line = |at: u64, others_bytes: u64| {
            let at_ms = 1_000 * at;
            format!(
                "{{\"at_ms\":{at_ms},\"total_bytes\":16000000000,\"others_bytes\":{others_bytes}}}\n"
            )
        };
        let calm = (0..decisions).map(|at| line(at, 1_000_000_000));
        let short = (decisions..decisions + 3).map(|at| line(at, 16_000_000_000));
        let later = (0..2_000).map(|at| line(decisions + 3 + at, 1_000_000_000));
        let text: String = calm.chain(short).chain(later).collect();
        fs::write(&self.script, text).unwrap();
        // A fixed micro-batch never waits.
        self.config.micro_batch = None;
        self
    }

    /// The best evaluation that a run must still have at its end, after what happened in `story`.
    /// Only if checkpoints of the best evaluations wait in memory: otherwise a disk that fails may
    /// cost one.
    pub fn best_after(&self, calm: &Story, story: &Story) -> Option<Best> {
        let is_reported = story.warnings.iter().any(|code| code == "report_not_saved");
        let last = calm.best.iter().max();
        let step = last.filter(|_| !self.slow_after.is_empty())?;
        Some(Best {
            step: *step,
            has_results: !is_reported,
        })
    }

    /// Everything, on a disk that may fail.
    pub fn play(&self, root: &Path, disk: &SimulatedDisk) -> Story {
        let mut story = Story::default();
        match RunStore::open(root.join("runs")).create("birds") {
            Ok(run) => self.use_run(&run, root, disk, &mut story),
            Err(error) => story.errors.push(error.to_string()),
        }
        story
    }

    /// Uses a new run from its start to its end.
    fn use_run(&self, run: &RunFolder, root: &Path, disk: &SimulatedDisk, story: &mut Story) {
        let started = self.start(run, disk, story);
        story.note(started);
        let resumed = self.resume(run, disk, story);
        story.note(resumed);
        self.annotate(run, disk, story);
        let exported = export(run, root);
        if exported.is_ok() {
            story.exported = Some(files(&root.join(EXPORT)));
        }
        story.note(exported);
        match RunStore::open(root.join("runs")).create("other") {
            Ok(other) => {
                if let Err(error) = disk::remove_dir_all(&other.path) {
                    story.errors.push(error.to_string());
                }
            }
            Err(error) => story.errors.push(error.to_string()),
        }
    }

    /// Writes notes and removes them, and draws the report.
    fn annotate(&self, run: &RunFolder, disk: &SimulatedDisk, story: &mut Story) {
        let mut fact = |file, exists, until: Option<usize>| {
            let from = disk.changes();
            story.facts.push(Fact {
                file,
                exists,
                from,
                until: until.unwrap_or(from),
            });
        };
        let notes = RunNotes {
            name: "Birds".to_owned(),
            ..RunNotes::default()
        };
        let mut outcomes = vec![run.write_notes(&notes)];
        fact("notes.json", true, None);
        outcomes.push(run.write_notes(&RunNotes::default()));
        fact("notes.json", false, Some(usize::MAX));
        if self.draws_report && story.begun.is_some() {
            let replayed = run.replay();
            let report = replayed.and_then(|replayed| runlog::report(&replayed, run));
            outcomes.push(report.map(|_| ()));
            fact("report.pdf", true, Some(usize::MAX));
        }
        for outcome in outcomes {
            story.note(outcome.map_err(TrainError::from));
        }
    }

    /// Resumes a run to its end on a disk that works, and returns the sums of its last checkpoint.
    pub fn finish(&self, run: &RunFolder, disk: &SimulatedDisk) -> Result<Option<Sums>> {
        self.resume(run, disk, &mut Story::default())?;
        Ok(sums(&run.path.join(RunFolder::checkpoint_name(self.steps))))
    }
}

impl Story {
    /// Notes an error, which a disk that fails may cause.
    fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            if error.code() == "panicked" {
                self.complaints.push(error.to_string());
            }
            self.errors.push(error.to_string());
        }
    }

    /// The newest step that was reported to be saved before this number of changes.
    pub fn last_saved(&self, changes: usize) -> u64 {
        last(&self.saved, changes)
    }

    /// The newest step before this number of changes.
    pub fn last_step(&self, changes: usize) -> u64 {
        last(&self.steps, changes)
    }
}

impl Fact {
    /// Whether the run folder holds what was reported before this number of changes.
    pub fn holds(&self, run: &RunFolder, changes: usize) -> bool {
        let is_due = (self.from..=self.until).contains(&changes);
        !is_due || run.path.join(self.file).exists() == self.exists
    }
}

fn last(reported: &[(usize, u64)], changes: usize) -> u64 {
    let before = reported.iter().filter(|(at, _)| *at <= changes);
    before.map(|(_, step)| *step).max().unwrap_or(0)
}

/// Exports the model of a run, unless that was done before.
pub fn export(run: &RunFolder, root: &Path) -> Result<()> {
    let folder = root.join(EXPORT);
    if folder.is_dir() {
        return Ok(());
    }
    trainer::on_threads(1, || {
        let model = TrainedModel::load(run, DevicePreference::Cpu, None)?;
        model.export(&folder, ExportFormat::HuggingFace)?;
        Ok(())
    })
}
