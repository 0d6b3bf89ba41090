//! `ebb plan`: estimates which models fit in memory before anything trains. Prints the footprint of
//! each micro-batch size, a suggested config, its headroom, and the time of an epoch.
//!
//! `trainer::estimate` does the estimates.

mod answer;
mod lengths;
mod planned_machine;
mod models;
mod parameter_count;
mod sharing;
mod table;
mod candle_threads;
mod estimate_time_limit;
mod group_speed;

use super::args::{OnHosts, Planned, Script, Settings};
use super::cluster::supervisor::{own_args, run_together};
use super::conversation_examples;
use super::failure::Failure;
use super::launched_group::in_group;
use super::output::out;
use super::preset_choice::read_for_preset;
use super::train::{base_config, with_downloaded_weights};
use super::verify_split::workload;
use crate::starting_point;
use answer::{Answer, Row, Time};
use bench::{Workload, estimate_workload, seconds_per_step};
use clap::Args;
use estimate_time_limit::{TimeLimit, by_cost};
use lengths::ByLength;
use models::{large_models, listed};
use planned_machine::PlannedMachine;
use pressure::BatchConfig;
use runlog::{CheckpointBlocks, DeviceChoice, RunConfig};
use sharing::Sharing;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use trainer::estimate::{Prefetched, Requirement, Target, Variants};
use trainer::{Estimate, ModelBuilder, RunGroup, default_threads};

/// Arguments of `ebb plan`.
#[derive(Args)]
pub struct Plan {
    /// Folder of images or texts, or a file of texts
    #[arg(required_unless_present_any = ["workload", "config", "parameters"])]
    pub folder: Option<PathBuf>,
    /// Workload of `ebb bench` to plan instead of a folder: gpt, gpt125m, resnet18, resnet50,
    /// convnext_tiny, vit_tiny or bert_mini
    #[arg(long, conflicts_with_all = ["folder", "preset", "config"])]
    pub workload: Option<String>,
    /// Number of parameters of a transformer to plan instead of a folder, such as 125M or 1e9
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["folder", "workload", "preset", "config", "processes"], value_parser = parameter_count::parse)]
    pub parameters: Option<u64>,
    /// Number of devices like this one that share each step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub devices: Option<u32>,
    #[command(flatten)]
    pub settings: Settings<Planned>,
    #[command(flatten)]
    pub hosts: OnHosts,
    /// Number of identical runs that share the memory at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub processes: u32,
    /// Plan for a Mac with this much memory, such as 16GB
    #[arg(long = "for", value_name = "SIZE", value_parser = planned_machine::parse_mac)]
    pub mac: Option<u64>,
    /// Plan as if other apps used this much memory, such as 4GB
    #[arg(long, value_name = "SIZE", value_parser = runlog::parse_bytes)]
    pub what_if: Option<u64>,
    /// A preset: quick, few_images, low_memory or token_compression
    #[arg(long)]
    pub preset: Option<String>,
    /// Config file in TOML or JSON; write - to read standard input
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Time limit for estimating the listed models; if no time is left for a model, Ebb leaves it
    /// out
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = planned_machine::parse_seconds)]
    pub within: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Micro-batch sizes in the table.
const LISTED_MICRO_BATCHES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Number of samples in the timed micro-batch. This number is large enough for matrix products at
/// full speed.
const TIMED_SAMPLES: usize = 4;
/// Default number of samples per step of a workload.
const WORKLOAD_BATCH: u32 = 32;

/// Runs `ebb plan`.
pub fn run(args: &Plan) -> Result<(), Failure> {
    if let Some(parameters) = args.parameters {
        return parameter_count::run(args, parameters);
    }
    if args.hosts.gpus.is_some() {
        return Err(Failure::usage(
            "--gpus works with `ebb train` and `ebb resume`; `ebb plan` measures on the CPU",
        ));
    }
    if args.hosts.on.is_some() {
        return on_hosts(args);
    }
    candle_threads::run_stock_operations_on_one_thread();
    let group = RunGroup::join_launched()?;
    if !group.is_alone() {
        return in_group(&group, || group_speed::run(args, &group));
    }
    let answer = match &args.workload {
        Some(name) => plan_workload(args, name),
        None => plan_folder(args),
    }?;
    if args.json {
        out!("{}", answer.as_json());
    } else {
        table::print(&answer);
    }
    match &answer.chosen().suggested {
        Ok(_) => Ok(()),
        Err(no) => Err(answer.refusal(no)),
    }
}

/// Lets the machines that the user names measure together.
fn on_hosts(args: &Plan) -> Result<(), Failure> {
    if args.mac.is_some() || args.what_if.is_some() || args.processes > 1 || args.devices.is_some()
    {
        return Err(Failure::usage(
            "--on measures machines, so it cannot be combined with --for, --what-if, --processes and --devices",
        ));
    }
    let folder = match &args.workload {
        Some(_) => None,
        None => config(args)?.folder,
    };
    let folder = folder.map(|folder| std::path::absolute(&folder).unwrap_or(folder));
    run_together(&args.hosts, own_args(), folder)
}

/// Number of checkpointed blocks of a workload.
fn workload_blocks(args: &Plan, workload: Workload) -> Result<u32, Failure> {
    let blocks = args.settings.config.checkpoint_blocks;
    let blocks = blocks.unwrap_or(CheckpointBlocks::Count(0));
    blocks.resolve(workload.blocks() as u32).ok_or_else(|| {
        Failure::usage(format!(
            "{} has {} blocks; set --checkpoint-blocks to a number from 0 to {}, or to all",
            workload.name(),
            workload.blocks(),
            workload.blocks()
        ))
    })
}

fn plan_workload(args: &Plan, name: &str) -> Result<Answer, Failure> {
    let (workload, start) = (workload(name)?, Instant::now());
    let machine = PlannedMachine::new(args, &RunConfig::default())?;
    let target = target(args.settings.config.threads, &machine);
    let blocks = workload_blocks(args, workload)?;
    let effective_batch = args
        .settings
        .config
        .effective_batch
        .unwrap_or(WORKLOAD_BATCH);
    let config = &args.settings.config;
    let (row, sharing) = Sharing::choose(args, config, &machine, |sharing| {
        let target = sharing.shared_target(target, config);
        let data = BatchConfig {
            effective_batch: sharing.samples_per_device(effective_batch),
            fixed_micro_batch: None,
        };
        let variants = min_checkpointing(&machine, &data);
        let memory = estimate_workload(workload, blocks, target, variants)?;
        let need = memory.whole_state(&data);
        Ok((Row::new(Estimate::new(memory, data), &machine), need))
    })?;
    let estimate_ms = 1e3 * start.elapsed().as_secs_f64();
    let seconds = match (&row.suggested, args.mac) {
        (Ok(config), None) => {
            seconds_per_step(workload, effective_batch, config.checkpoint_blocks, target)?
        }
        _ => None,
    };
    Ok(Answer {
        subject: name.to_owned(),
        machine,
        sharing,
        effective_batch,
        optimizer: "adamw".to_owned(),
        unit: if workload.tokens() == 0 {
            "px"
        } else {
            "tokens"
        },
        rows: vec![row],
        chosen: 0,
        left_out: Vec::new(),
        large_models: Vec::new(),
        time: seconds.map(|seconds| Time {
            seconds,
            of: "step",
            from: "its operation count and this machine's measured matrix-multiply speed",
        }),
        step_seconds: None,
        estimate_ms,
        is_corrected: false,
        starting_point: None,
        examples: Vec::new(),
    })
}

fn plan_folder(args: &Plan) -> Result<Answer, Failure> {
    let config = config(args)?;
    let folder = config.folder.clone().ok_or_else(|| {
        Failure::usage(
            "no folder to plan for; write `ebb plan FOLDER`, or set `folder` in the config",
        )
    })?;
    let found = read_for_preset(&folder, &config, args.preset.as_deref())?;
    let builder = ModelBuilder::from_config(&config, &found)?;
    let plan = builder.plan();
    if args.mac.is_none() {
        plan.check_start()?;
    }
    let examples = conversation_examples::examples_for(&found, plan)?;
    let start = Instant::now();
    let machine = PlannedMachine::new(args, &config)?;
    let target = target(Some(plan.threads), &machine);
    let (list, sharing) = Sharing::choose(args, &config, &machine, |sharing| {
        let data = BatchConfig {
            effective_batch: sharing.samples_per_device(plan.effective_batch),
            fixed_micro_batch: plan.fixed_micro_batch,
        };
        let target = sharing.shared_target(target, &config);
        let list = estimate_list(args, &builder, &machine, &Device { target, data }, start)?;
        let need = list.rows[list.chosen].memory.whole_state(&data);
        Ok((list, need))
    })?;
    let estimate_ms = 1e3 * start.elapsed().as_secs_f64();
    let per_sample = match args.mac {
        None if target.kind == trainer::DeviceKind::Cpu => list.seconds_per_sample(plan)?,
        _ => None,
    };
    let samples = sharing.samples_per_device(plan.effective_batch);
    Ok(Answer {
        subject: plan.name.clone(),
        machine,
        sharing,
        effective_batch: plan.effective_batch,
        optimizer: plan.optimizer.name().to_owned(),
        unit: plan.task().size_unit(),
        step_seconds: list.step_seconds(plan, samples, per_sample),
        rows: list.rows,
        chosen: list.chosen,
        left_out: list.left_out,
        large_models: large_models(args, plan),
        time: per_sample.map(|per_sample| Time {
            seconds: per_sample * plan.train_samples as f64,
            of: "epoch",
            from: "a measured micro-batch",
        }),
        estimate_ms,
        is_corrected: args.mac.is_none(),
        starting_point: starting_point::describe(&config, &found),
        examples,
    })
}

/// The rows of the table.
struct List {
    rows: Vec<Row>,
    /// Index in `rows` of the model that the plan names.
    chosen: usize,
    /// Models and resolutions that were not estimated within the time limit.
    left_out: Vec<(String, u32)>,
}

impl List {
    /// Seconds per sample of the model that the plan names, measured; `None` if it does not fit.
    fn seconds_per_sample(&self, plan: &trainer::Plan) -> Result<Option<f64>, Failure> {
        let Ok(found) = &self.rows[self.chosen].suggested else {
            return Ok(None);
        };
        let samples = TIMED_SAMPLES.min(found.micro_batch as usize);
        Ok(Some(
            plan.seconds_per_sample(samples, found.checkpoint_blocks)?,
        ))
    }

    /// Seconds per step of the listed lengths, each `None` if they are not known; `None` if other
    /// rows than lengths are listed. A step has `samples` samples, and one of the planned length
    /// takes `per_sample` seconds.
    fn step_seconds(
        &self,
        plan: &trainer::Plan,
        samples: u32,
        per_sample: Option<f64>,
    ) -> Option<Vec<Option<f64>>> {
        let has_lengths = plan.pretrained.is_some() && self.rows.len() > 1;
        let time = |row: &Row| lengths::relative_step_time(plan, row);
        let planned = time(&self.rows[self.chosen]);
        let seconds = |row: &Row| Some(f64::from(samples) * per_sample? * time(row)? / planned?);
        has_lengths.then(|| self.rows.iter().map(seconds).collect())
    }
}

/// One of the devices that share a run, and what it computes of each step.
struct Device {
    target: Target,
    data: BatchConfig,
}

/// Estimates the model of the plan first, then other models until the time limit.
fn estimate_list(
    args: &Plan,
    builder: &ModelBuilder,
    machine: &PlannedMachine,
    device: &Device,
    start: Instant,
) -> Result<List, Failure> {
    let plan = builder.plan();
    let listed = listed(args, plan);
    let planned = listed
        .iter()
        .position(|row| *row == (plan.model, plan.input_size));
    let limit = TimeLimit::new(start, args.within);
    let has_lengths = plan.pretrained.is_some() && listed.len() > 1;
    let mut by_length = None;
    let (mut rows, mut left_out) = (BTreeMap::new(), Vec::new());
    for place in by_cost(&listed, planned.unwrap_or(0)) {
        let (model, side) = listed[place];
        let is_first = rows.is_empty();
        let variants = if is_first || has_lengths {
            min_checkpointing(machine, &device.data)
        } else {
            Variants::Planned
        };
        let estimate = || builder.estimate_as(model, side, device.target, variants);
        let memory = if is_first || limit.has_time_for(side) {
            limit.timed(side, estimate)?.memory
        } else if let Some(by_length) = &by_length {
            ByLength::at(by_length, side)
        } else {
            left_out.push((model.name().to_owned(), side));
            continue;
        };
        if is_first && has_lengths {
            let config = &args.settings.config;
            let measured = ByLength::new(config, builder, device, machine, &memory);
            by_length = Some(measured?);
        }
        let estimate = Estimate::new(memory, device.data).corrected(machine.correction.factor);
        rows.insert(place, Row::new(estimate, machine));
    }
    let chosen = rows.keys().position(|place| Some(*place) == planned);
    Ok(List {
        chosen: chosen.unwrap_or(0),
        rows: rows.into_values().collect(),
        left_out,
    })
}

/// Makes an estimate look for the smallest number of checkpointed blocks with which the smallest
/// micro-batch fits.
fn min_checkpointing(machine: &PlannedMachine, data: &BatchConfig) -> Variants {
    let micro_batch = data.fixed_micro_batch.unwrap_or(1);
    Variants::MinCheckpointing(Requirement {
        budget_bytes: machine.budget_bytes(),
        micro_batch: micro_batch.min(data.effective_batch),
        effective_batch: data.effective_batch,
        prefetched: Prefetched::Included,
    })
}

fn target(threads: Option<u32>, machine: &PlannedMachine) -> Target {
    let threads = threads.map_or_else(default_threads, |n| n as usize);
    let cap = machine.device.memory_cap_bytes.unwrap_or(u64::MAX);
    // Memory that the allocator still holds after the inspection is not part of the program.
    crate::allocator::purge();
    Target::new(machine.kind, threads, machine.device.total_bytes.min(cap))
}

fn config(args: &Plan) -> Result<RunConfig, Failure> {
    let total_bytes = || match args.mac {
        Some(bytes) => bytes,
        None => super::train::total_bytes(&super::train::machine(&Script::default())),
    };
    let base = base_config(args.preset.as_deref(), args.config.as_deref(), total_bytes)?;
    let folder = args.folder.clone().or(base.folder.clone());
    let mut config = RunConfig {
        folder,
        ..args.settings.over(base)
    };
    // Another Mac trains on Metal.
    if args.settings.config.device.is_none() && args.mac.is_some() {
        config.device = Some(DeviceChoice::Metal);
    }
    config.validate()?;
    with_downloaded_weights(config)
}
