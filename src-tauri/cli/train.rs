//! `ebb train` and `ebb resume`.

use super::args::{self, Script};
pub use super::download::with_downloaded_weights;
use super::failure::Failure;
use super::output::status;
use super::progress::Progress;
use super::{inspect, inspect_texts, interrupt};
use crate::paths::device_check_path;
use dataset::{DetectedDataset, Task, detect};
use runlog::{RunConfig, RunFolder, RunStore, TaskChoice, preset, preset_names, read_events};
use std::path::{Path, PathBuf};
use trainer::estimate::plan_within_cap;
use trainer::{Control, Machine, MemoryScript, Replay, RunContext, inspect_options, text_options};

/// Defaults of `--dev-mode`: number of samples, and of epochs.
const DEV_SAMPLES: u64 = 100;
const DEV_EPOCHS: u64 = 2;

/// Runs `ebb train`.
pub fn start(args: args::Train) -> Result<(), Failure> {
    let config = config(&args)?;
    let folder = config.folder.clone().ok_or_else(|| {
        Failure::usage(
            "no folder to train on; write `ebb train FOLDER`, or set `folder` in the config",
        )
    })?;
    let found = look_at(&folder, &config)?;
    let total_bytes = match config.memory_cap_fraction {
        Some(_) => total_bytes(&machine(&args.script)),
        None => 0,
    };
    let plan = plan_within_cap(&config, &found, total_bytes)?;
    plan.check_precision()?;
    let replay = args.replay.as_deref().map(replay).transpose()?;
    if !args.json {
        match &found {
            DetectedDataset::Images(found) => inspect::describe(found),
            DetectedDataset::Texts(found) => inspect_texts::describe(found, plan.task()),
        }
    }
    if let (Some(pretrained), false) = (&plan.pretrained, args.json) {
        status!(
            "{}",
            trainer::pretrained::describe(pretrained, plan.trained_parameters()?)
        );
    }
    let context = run_context(&args.script, replay)?;
    let run = create(args.out.as_deref(), &plan.name)?;
    let mut progress = Progress::new(args.json);
    let mut is_announced = args.json;
    trainer::start(plan, found, &run, context, &mut |event| {
        // Printed with the first event, because a run that is refused before leaves no folder.
        if !std::mem::replace(&mut is_announced, true) {
            status!("Run: {}", run.path.display());
        }
        progress.receive(event);
    })
    .map_err(|error| discard_unstarted(&run, error))?;
    Ok(())
}

/// Converts the task of a config to the task type of the dataset crate.
pub fn dataset_task(choice: TaskChoice) -> Task {
    match choice {
        TaskChoice::ImageClassification => Task::ImageClassification,
        TaskChoice::TextClassification => Task::TextClassification,
        TaskChoice::LanguageModel => Task::LanguageModel,
        TaskChoice::TokenCompression => Task::TokenCompression,
    }
}

/// Inspects a folder as a config asks for.
pub fn look_at(folder: &Path, config: &RunConfig) -> Result<DetectedDataset, Failure> {
    let texts = text_options(config, config.task.map(dataset_task));
    Ok(detect(folder, &inspect_options(config)?, &texts, &|_| {})?)
}

/// Runs `ebb resume`.
pub fn resume(args: args::Resume) -> Result<(), Failure> {
    let run = find(&args.run)?;
    let context = run_context(&args.script, None)?;
    let mut progress = Progress::from_run(run.replay()?, args.json);
    trainer::resume(&run, context, &mut |event| progress.receive(event))?;
    Ok(())
}

/// The run that a user names: an id, the beginning of a name, or a path.
pub fn find(text: &str) -> Result<RunFolder, Failure> {
    Ok(RunStore::open(RunStore::default_root()).find(text)?)
}

/// The settings of the config file, then those of the preset, for a machine with this much memory.
pub fn base_config(
    preset_name: Option<&str>,
    file: Option<&Path>,
    total_bytes: impl Fn() -> u64,
) -> Result<RunConfig, Failure> {
    let preset = match preset_name {
        None => RunConfig::default(),
        Some(name) => preset(name).ok_or_else(|| {
            let names: Vec<&str> = preset_names().collect();
            Failure::usage(format!(
                "there is no preset `{name}`; choose one of {}",
                names.join(", ")
            ))
        })?,
    };
    let file = file.map(RunConfig::load_with_notes).transpose()?;
    let (file, notes) = file.unwrap_or_default();
    for note in notes {
        status!("{note}");
    }
    let base = file.over(preset);
    match base.by_memory.is_empty() {
        true => Ok(base),
        false => Ok(base.for_memory(total_bytes())),
    }
}

/// Physical memory of a machine; 0 if it cannot be read.
pub fn total_bytes(machine: &Machine) -> u64 {
    let sample = machine.open().and_then(|mut source| Ok(source.sample()?));
    sample.map_or(0, |sample| sample.total_bytes)
}

/// The settings of the command line, then those of the config file, then those of the preset.
fn config(args: &args::Train) -> Result<RunConfig, Failure> {
    let total_bytes = || total_bytes(&machine(&args.script));
    let base = base_config(args.preset.as_deref(), args.config.as_deref(), total_bytes)?;
    let folder = args.folder.clone().or(base.folder.clone());
    let mut config = RunConfig {
        folder,
        ..args.settings.over(base)
    };
    if args.dev_mode {
        config.dev_samples = config.dev_samples.or(Some(DEV_SAMPLES));
        if config.steps.is_none() {
            config.epochs = config.epochs.or(Some(DEV_EPOCHS));
        }
    }
    config.validate()?;
    with_downloaded_weights(config)
}

fn run_context(script: &Script, replay: Option<Replay>) -> Result<RunContext, Failure> {
    let control = Control::default();
    interrupt::handle(&control)?;
    Ok(RunContext {
        control,
        machine: machine(script),
        replay,
        ..RunContext::default()
    })
}

pub fn machine(script: &Script) -> Machine {
    let by = script.memory_script_by.into();
    Machine {
        script: script
            .memory_script
            .clone()
            .map(|path| MemoryScript { path, by }),
        purge: crate::allocator::purge,
        device_check_path: Some(device_check_path()),
        ..Machine::default()
    }
}

fn replay(run: &str) -> Result<Replay, Failure> {
    Ok(Replay::from_events(&read_events(
        &find(run)?.events_path(),
    )?))
}

/// Creates a run folder, in the store or where the user wants it.
fn create(out: Option<&Path>, name: &str) -> Result<RunFolder, Failure> {
    let root = out.map_or_else(RunStore::default_root, PathBuf::from);
    Ok(RunStore::open(root).create(name)?)
}

/// Removes the folder of a run that failed before its first event.
fn discard_unstarted(run: &RunFolder, error: trainer::TrainError) -> Failure {
    let begun = std::fs::metadata(run.events_path()).is_ok_and(|events| events.len() > 0);
    if !begun {
        // The folder contains only a config, which the user has too.
        let _ = std::fs::remove_dir_all(&run.path);
    }
    error.into()
}
