//! `ebb train` and `ebb resume`.

use super::args::{self, Script};
use super::cluster::machines;
use super::cluster::supervised::Supervised;
use super::cluster::supervisor::{Job, own_args, supervise};
use super::config_file::read_config;
use super::failure::Failure;
use super::find_lr::{STEPS, suggest_rate};
use super::interrupt::AtWork;
use super::launched_group::{ScratchFolder, in_group, refuse_group};
use super::output::{is_silent, status};
use super::preset_choice::{preset_settings, read_for_preset};
use super::progress::Progress;
pub use super::scripted_machine::{machine, total_bytes};
pub use super::weights_from_hub::with_downloaded_weights;
use super::{conversation_examples, inspect, inspect_texts, interrupt};
use crate::compare_estimate::MeasuredFootprint;
use crate::judge_run::judge;
use crate::paths::is_within;
use crate::starting_point;
use dataset::DetectedDataset;
use runlog::{RunConfig, RunFolder, RunStore, read_events};
use std::path::{Path, PathBuf};
use trainer::{Control, Plan, Replay, Results, RunContext, RunGroup, RunLength};

/// Numbers of samples and epochs that `--dev-mode` sets by default.
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
    if args.find_learning_rate {
        refuse_group("--find-learning-rate")?;
    }
    if let Some(hosts) = machines(&args.hosts)? {
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        return on_hosts(Job {
            hosts,
            interface: args.hosts.over,
            args: own_args(),
            folder: Some(folder),
            run: None,
            json: args.json,
        });
    }
    let folder = args.hosts.folder_here.clone().unwrap_or(folder);
    let config = RunConfig {
        folder: Some(folder.clone()),
        ..config
    };
    let group = RunGroup::join_launched()?;
    in_group(&group, || train(&args, config, &folder, &group))
}

/// Trains on the machines that the user names, in processes of their own.
fn on_hosts(job: Job) -> Result<(), Failure> {
    refuse_group("--on")?;
    supervise(job)
}

/// Trains, alone or as one rank of a group.
fn train(
    args: &args::Train,
    config: RunConfig,
    folder: &Path,
    group: &RunGroup,
) -> Result<(), Failure> {
    let found = read_for_preset(folder, &config, args.preset.as_deref())?;
    let at_work = args.find_learning_rate.then(AtWork::handled).transpose()?;
    let config = match &at_work {
        Some(at_work) => with_suggested_rate(config, &found, at_work)?,
        None => config,
    };
    let total_bytes = match config.memory_cap_fraction {
        Some(_) => total_bytes(&machine(&args.script)),
        None => 0,
    };
    let plan = Plan::within_cap(&config, &found, total_bytes, group.size())?;
    plan.check_start()?;
    let replay = recorded(args, group)?;
    if !args.json {
        describe(&found, &plan, &config)?;
    }
    let mut progress = Progress::new(args.json);
    let context = RunContext {
        live: progress.live().filter(|_| group.keeps_run()),
        group: group.clone(),
        ..match &at_work {
            Some(at_work) => context(&args.script, replay, at_work.next()),
            None => run_context(&args.script, replay)?,
        }
    };
    let (_scratch, run) = new_run(args, group, &plan, folder)?;
    if let Some(supervised) = Supervised::from_environment(group) {
        supervised.listen(&context.control)?;
        supervised.report_run(&run)?;
    }
    let mut is_announced = args.json;
    let mut measured = MeasuredFootprint::before(&plan, false);
    trainer::start(plan.clone(), found, &run, context, &mut |event| {
        measured.receive(event, &plan);
        // Printed with the first event, because a run that is refused before leaves no folder.
        if !std::mem::replace(&mut is_announced, true) {
            status!("Run: {}", run.path.display());
        }
        if !is_silent() {
            progress.receive(event);
        }
    })
    .map_err(|error| discard_unstarted(&run, error))?;
    let compared = compare(args, group, &measured, &plan);
    if !args.json {
        if let Some(sentence) = compared {
            status!("{sentence}");
        }
        print_judgement(&run);
    }
    Ok(())
}

/// Compares the memory of a run with its estimate. A run with scripted memory, or as one of a
/// group, is unlike those that a user plans.
fn compare(
    args: &args::Train,
    group: &RunGroup,
    measured: &MeasuredFootprint,
    plan: &Plan,
) -> Option<String> {
    let is_usual = args.script.memory_script.is_none() && group.is_alone();
    is_usual.then(|| measured.compare(plan)).flatten()
}

/// A new run folder, which is temporary if another rank keeps the run.
fn new_run(
    args: &args::Train,
    group: &RunGroup,
    plan: &Plan,
    folder: &Path,
) -> Result<(Option<ScratchFolder>, RunFolder), Failure> {
    if group.keeps_run() {
        return Ok((None, create(args.out.as_deref(), &plan.name, folder)?));
    }
    let (scratch, run) = ScratchFolder::create(group, &plan.name)?;
    Ok((Some(scratch), run))
}

/// Prints what will be trained on, from which weights, and with which defaults.
fn describe(found: &DetectedDataset, plan: &Plan, config: &RunConfig) -> Result<(), Failure> {
    match found {
        DetectedDataset::Images(found) => inspect::describe(found),
        DetectedDataset::Texts(found) => inspect_texts::describe(found, plan.task()),
    }
    let examples = conversation_examples::examples_for(found, plan)?;
    conversation_examples::describe(&examples[..examples.len().min(1)]);
    if let Some(pretrained) = &plan.pretrained {
        status!(
            "{}",
            trainer::pretrained::describe(pretrained, plan.trained_parameters()?)
        );
    }
    for sentence in plan.explain_defaults(config) {
        status!("Default: {sentence}");
    }
    if let Some(sentence) = starting_point::describe(config, found) {
        status!("{sentence}");
    }
    Ok(())
}

/// The config with the learning rate that a short test suggests.
fn with_suggested_rate(
    config: RunConfig,
    found: &DetectedDataset,
    at_work: &AtWork,
) -> Result<RunConfig, Failure> {
    if config.learning_rate.is_some() {
        return Err(Failure::usage(
            "--find-learning-rate and a learning rate are both given; give only one of them",
        ));
    }
    status!("Looking for a learning rate: {STEPS} steps with a rising rate");
    let suggested = suggest_rate(&config, found, at_work)?;
    match suggested {
        Some(rate) => status!(
            "Learning rate {rate:.1e}: at this rate, the loss fell fastest. --learning-rate sets another one"
        ),
        None => status!("The loss did not fall at any rate, so Ebb uses its usual learning rate"),
    }
    Ok(RunConfig {
        learning_rate: suggested,
        ..config
    })
}

/// Prints how good the model of a run that ended is, and what would help.
fn print_judgement(run: &RunFolder) {
    let results = Results::load(run).ok().flatten();
    let judgement = results.and_then(|results| judge(run, &results));
    if let Some(judgement) = judgement {
        status!("{judgement}");
    }
}

/// Runs `ebb resume`.
pub fn resume(args: args::Resume) -> Result<(), Failure> {
    if let Some(hosts) = machines(&args.hosts)? {
        let run = find(&args.run)?;
        return on_hosts(Job {
            hosts,
            interface: args.hosts.over,
            args: own_args(),
            folder: None,
            run: Some(run),
            json: args.json,
        });
    }
    let group = RunGroup::join_launched()?;
    in_group(&group, || resume_run(&args, &group))
}

/// Continues a run, alone or as one rank of a group. Only rank 0 has the run's folder.
fn resume_run(args: &args::Resume, group: &RunGroup) -> Result<(), Failure> {
    let (_scratch, run) = if group.keeps_run() {
        (None, find(&args.run)?)
    } else {
        let (scratch, run) = ScratchFolder::create(group, "resumed")?;
        (Some(scratch), run)
    };
    let mut progress = if group.keeps_run() {
        Progress::from_run(run.replay()?, args.json)
    } else {
        Progress::new(args.json)
    };
    let data_folder = args.hosts.folder_here.as_ref().or(args.folder.as_ref());
    let context = RunContext {
        live: progress.live().filter(|_| group.keeps_run()),
        group: group.clone(),
        data_folder: data_folder.cloned().map(folder_of),
        ..run_context(&args.script, None)?
    };
    if let Some(supervised) = Supervised::from_environment(group) {
        supervised.listen(&context.control)?;
        supervised.report_run(&run)?;
    }
    let epochs = args.epochs.map(RunLength::Epochs);
    let length = epochs.or(args.steps.map(RunLength::Steps));
    trainer::resume_to(&run, length, context, &mut |event| {
        if !is_silent() {
            progress.receive(event);
        }
    })?;
    if !args.json {
        print_judgement(&run);
    }
    Ok(())
}

/// The folder of a dataset: that of a single file is the one that contains it.
fn folder_of(path: PathBuf) -> PathBuf {
    match path.parent() {
        Some(parent) if path.is_file() => parent.to_owned(),
        _ => path,
    }
}

/// The run that a user names: an id, the beginning of a name, or a path.
pub fn find(text: &str) -> Result<RunFolder, Failure> {
    Ok(RunStore::open(RunStore::default_root()).find(text)?)
}

/// The settings of the config file; the preset supplies the absent ones. Values that depend on the
/// machine's memory are those for a machine with `total_bytes`.
pub fn base_config(
    preset_name: Option<&str>,
    file: Option<&Path>,
    total_bytes: impl Fn() -> u64,
) -> Result<RunConfig, Failure> {
    file_over(preset_or_default(preset_name)?, file, total_bytes)
}

fn preset_or_default(name: Option<&str>) -> Result<RunConfig, Failure> {
    match name {
        None => Ok(RunConfig::default()),
        Some(name) => preset_settings(name),
    }
}

/// The settings of the config file; `preset` supplies the absent ones.
fn file_over(
    preset: RunConfig,
    file: Option<&Path>,
    total_bytes: impl Fn() -> u64,
) -> Result<RunConfig, Failure> {
    let base = read_config(file)?.over(preset);
    if base.by_memory.is_empty() {
        Ok(base)
    } else {
        Ok(base.for_memory(total_bytes()))
    }
}

/// The settings of the command line. The config file supplies the absent ones, and the preset
/// supplies those that are absent from both.
fn config(args: &args::Train) -> Result<RunConfig, Failure> {
    config_over(args, preset_or_default(args.preset.as_deref())?)
}

/// The settings of the command line and the config file; `preset` supplies the absent ones. A
/// search for a learning rate replaces the rate of a preset.
fn config_over(args: &args::Train, mut preset: RunConfig) -> Result<RunConfig, Failure> {
    if args.find_learning_rate {
        preset.learning_rate = None;
    }
    let total_bytes = || total_bytes(&machine(&args.script));
    let base = file_over(preset, args.config.as_deref(), total_bytes)?;
    let folder = args.folder.clone().or(base.folder.clone());
    let flags = args.settings.over(RunConfig::default());
    if let (Some(epochs), Some(steps)) = (flags.epochs, flags.steps) {
        return Err(Failure::usage(format!(
            "--epochs {epochs} and --steps {steps} both set the length of the training; give only one of them"
        )));
    }
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

pub fn run_context(script: &Script, replay: Option<Replay>) -> Result<RunContext, Failure> {
    let control = Control::default();
    interrupt::handle(&control)?;
    Ok(context(script, replay, control))
}

fn context(script: &Script, replay: Option<Replay>, control: Control) -> RunContext {
    RunContext {
        control,
        machine: machine(script),
        replay,
        ..RunContext::default()
    }
}

/// The run to repeat. Only rank 0 needs it.
fn recorded(args: &args::Train, group: &RunGroup) -> Result<Option<Replay>, Failure> {
    let Some(run) = args.replay.as_deref().filter(|_| group.keeps_run()) else {
        return Ok(None);
    };
    let events = read_events(&find(run)?.events_path())?;
    Ok(Some(Replay::from_events(&events)))
}

/// Creates a run folder, in the store or where the user wants it.
pub fn create(out: Option<&Path>, name: &str, dataset: &Path) -> Result<RunFolder, Failure> {
    let Some(out) = out else {
        return Ok(RunStore::open(RunStore::default_root()).create(name)?);
    };
    if is_within(out, dataset) {
        return Err(Failure::usage(format!(
            "--out is in {}, and Ebb never writes into the folder that it trains on; choose another folder",
            dataset.display()
        )));
    }
    Ok(RunStore::open(out.to_owned()).create(name)?)
}

/// Removes the folder of a run that failed before its first event.
pub fn discard_unstarted(run: &RunFolder, error: trainer::TrainError) -> Failure {
    let begun = std::fs::metadata(run.events_path()).is_ok_and(|events| events.len() > 0);
    if !begun {
        // The folder contains only a config, which the user has too.
        let _ = disk::remove_dir_all(&run.path);
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_search_replaces_the_learning_rate_of_a_preset_only() {
        let rate = |flags: &[&str]| {
            let line = [&["ebb", "train", "birds"][..], flags].concat();
            let parsed = args::Ebb::try_parse_from(line).map(|parsed| parsed.command);
            let Ok(Some(args::Command::Train(train))) = parsed else {
                panic!("{flags:?} cannot be parsed");
            };
            let preset = RunConfig {
                learning_rate: Some(0.25),
                ..RunConfig::default()
            };
            let Ok(config) = config_over(&train, preset) else {
                panic!("{flags:?} is refused");
            };
            config.learning_rate
        };
        assert_eq!(rate(&[]), Some(0.25));
        assert_eq!(rate(&["--find-learning-rate"]), None);
        let given = ["--find-learning-rate", "--learning-rate", "0.5"];
        assert_eq!(rate(&given), Some(0.5), "refused later");
    }
}
