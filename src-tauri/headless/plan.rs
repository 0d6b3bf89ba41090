//! `ebb plan`: what fits, before anything trains. A table of footprints by micro-batch, the config to begin with, what is left
//! and how long an epoch takes. Refuses to know how a forecast is made.

mod asked;
mod clock;
mod listed;
mod table;
mod threads;

use super::args::{Compression, Computing, Limits, Texts, Trained, Weights};
use super::failure::Failure;
use super::say::out;
use super::train::{base_config, brought, machine};
use super::verify_split::workload;
use asked::{Room, room};
use clap::Args;
use clock::{Clock, Time, by_cost};
use listed::{listed, others, unit};
use pressure::{DataNeed, DoesNotFit, ModelNeed, SuggestedConfig, options_needing_consent};
use runlog::{Blocks, RunConfig};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use trainer::forecast::{
    Fit, Forecast, Forms, Target, Waiting, alignment, seconds_a_sample, seconds_of,
};
use trainer::{Estimate, ModelBuilder, Parts, default_threads};

/// The question.
#[derive(Args)]
pub struct Plan {
    /// Folder of photographs or texts, or a file of texts
    #[arg(required_unless_present_any = ["workload", "config"])]
    pub folder: Option<PathBuf>,
    /// gpt, gpt125m, resnet18, vit_tiny or bert_mini, in the place of a folder
    #[arg(long, conflicts_with_all = ["folder", "preset", "config"])]
    pub workload: Option<String>,
    #[command(flatten)]
    pub trained: Trained,
    #[command(flatten)]
    pub weights: Weights,
    #[command(flatten)]
    pub texts: Texts,
    #[command(flatten)]
    pub compression: Compression,
    /// Samples a step
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub effective_batch: Option<u32>,
    /// So many trainings like this one at once, each in an equal part of what is left
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub processes: u32,
    #[command(flatten)]
    pub computing: Computing,
    #[command(flatten)]
    pub limits: Limits,
    /// Plan for a Mac with so much memory, such as 16GB
    #[arg(long = "for", value_name = "SIZE", value_parser = asked::mac)]
    pub mac: Option<u64>,
    /// What if other apps took so much, such as 4GB
    #[arg(long, value_name = "SIZE", value_parser = runlog::parse_bytes)]
    pub what_if: Option<u64>,
    /// A preset of the folder configs, such as quick or memory_small
    #[arg(long)]
    pub preset: Option<String>,
    /// A config file, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Leave out of the list what is not forecast within so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = asked::seconds)]
    pub within: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One model at one resolution, with what fits of it.
struct Row {
    forecast: Forecast,
    need: ModelNeed,
    parts: Parts,
    suggested: Result<SuggestedConfig, DoesNotFit>,
}

/// What is said.
struct Answer {
    subject: String,
    room: Room,
    effective_batch: u32,
    optimizer: String,
    /// What resolutions are counted in: "px" or "tokens".
    unit: &'static str,
    rows: Vec<Row>,
    /// Which row is to be trained.
    chosen: usize,
    /// Models and resolutions for which there was no time.
    left_out: Vec<(String, u32)>,
    /// Networks that can be planned by name.
    others: Vec<&'static str>,
    /// Seconds of an epoch, or of a step of a workload, where they are known.
    seconds: Option<Time>,
    forecast_ms: f64,
}

/// Micro-batches of the table.
const SHOWN: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Samples of the piece whose time is measured: enough for matrix products at full speed.
const TIMED: usize = 4;
/// Samples a step of a workload unless asked otherwise.
const WORKLOAD_BATCH: u32 = 32;

/// The top-level entry point of `ebb plan`.
pub fn run(args: &Plan) -> Result<(), Failure> {
    threads::run_stock_operations_alone();
    let answer = match &args.workload {
        Some(name) => of_workload(args, name),
        None => of_folder(args),
    }?;
    match args.json {
        true => out!("{}", answer.as_json()),
        false => table::show(&answer),
    }
    let row = &answer.rows[answer.chosen];
    let found = row.suggested.as_ref().map(|_| ());
    found.map_err(|no| answer.refusal(row, no))
}

fn of_workload(args: &Plan, name: &str) -> Result<Answer, Failure> {
    let (workload, begun) = (workload(name)?, Instant::now());
    let room = room(args, &RunConfig::default())?;
    let target = target(args.computing.threads, &room);
    let blocks = args.computing.checkpoint_blocks.unwrap_or(Blocks::Count(0));
    let blocks = blocks.of(workload.blocks() as u32).ok_or_else(|| {
        Failure::usage(format!(
            "{name} has {} blocks; write 0 to {0}, or all",
            workload.blocks()
        ))
    })?;
    let effective_batch = args.effective_batch.unwrap_or(WORKLOAD_BATCH);
    let forms = fewest(&room, effective_batch, None);
    let forecast = Forecast::of_workload(workload, blocks, target, forms)?;
    let data = DataNeed {
        effective_batch,
        fixed_micro_batch: None,
    };
    let row = row(Estimate::of(forecast, data), &room);
    let forecast_ms = 1e3 * begun.elapsed().as_secs_f64();
    let seconds = match (&row.suggested, args.mac) {
        (Ok(config), None) => {
            seconds_of(workload, effective_batch, config.checkpoint_blocks, target)?
        }
        _ => None,
    };
    Ok(Answer {
        subject: name.to_owned(),
        room,
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
        others: Vec::new(),
        seconds: seconds.map(|seconds| Time {
            seconds,
            of: "step",
            from: "its operations at the machine's measured matrix-product rate",
        }),
        forecast_ms,
    })
}

fn of_folder(args: &Plan) -> Result<Answer, Failure> {
    let config = config(args)?;
    let folder = config.folder.clone().ok_or_else(|| {
        Failure::usage("no folder to plan for; write `ebb plan FOLDER`, or give one in the config")
    })?;
    let found = super::train::look_at(&folder, &config)?;
    let builder = ModelBuilder::from_config(&config, &found)?;
    let plan = builder.plan();
    if args.mac.is_none() {
        plan.expect_computable()?;
    }
    let begun = Instant::now();
    let room = room(args, &config)?;
    let target = target(Some(plan.threads), &room);
    let listed = listed(args, plan);
    let wanted = listed
        .iter()
        .position(|row| *row == (plan.model, plan.image_size));
    let clock = Clock::new(begun, args.within);
    let (mut rows, mut left_out) = (BTreeMap::new(), Vec::new());
    for place in by_cost(&listed, wanted.unwrap_or(0)) {
        let (model, side) = listed[place];
        let is_wanted = rows.is_empty();
        if !is_wanted && !clock.has_time_for(side) {
            left_out.push((model.name().to_owned(), side));
            continue;
        }
        let forms = match is_wanted {
            true => fewest(&room, plan.effective_batch, plan.fixed_micro_batch),
            false => Forms::Planned,
        };
        let estimate = clock.timed(side, || builder.estimate_as(model, side, target, forms))?;
        rows.insert(place, row(estimate, &room));
    }
    let chosen = rows.keys().position(|place| Some(*place) == wanted);
    let (chosen, rows) = (chosen.unwrap_or(0), rows.into_values().collect::<Vec<_>>());
    let forecast_ms = 1e3 * begun.elapsed().as_secs_f64();
    let seconds = match &rows[chosen].suggested {
        Ok(found) if args.mac.is_none() && target.kind == "cpu" => {
            let samples = TIMED.min(found.micro_batch as usize);
            let each = seconds_a_sample(plan, samples, found.checkpoint_blocks)?;
            Some(each * plan.train_samples as f64)
        }
        _ => None,
    };
    Ok(Answer {
        subject: plan.name.clone(),
        room,
        effective_batch: plan.effective_batch,
        optimizer: plan.optimizer.name().to_owned(),
        unit: unit(plan.task()),
        rows,
        chosen,
        left_out,
        others: others(args, plan),
        seconds: seconds.map(|seconds| Time {
            seconds,
            of: "epoch",
            from: "a measured piece",
        }),
        forecast_ms,
    })
}

fn row(estimate: Estimate, room: &Room) -> Row {
    Row {
        suggested: estimate.suggest_config(&room.device, &room.processes, room.trainings),
        need: estimate.need(&SHOWN),
        parts: estimate.parts(&SHOWN),
        forecast: estimate.forecast,
    }
}

/// As few checkpointed blocks as let the smallest piece fit.
fn fewest(room: &Room, effective_batch: u32, fixed: Option<u32>) -> Forms {
    Forms::Fewest(Fit {
        budget_bytes: room.budget_bytes(),
        micro_batch: fixed.unwrap_or(1).min(effective_batch),
        effective_batch,
        waiting: Waiting::Counts,
    })
}

fn target(threads: Option<u32>, room: &Room) -> Target {
    let threads = threads.map_or_else(default_threads, |n| n as usize);
    let cap = room.device.memory_cap_bytes.unwrap_or(u64::MAX);
    // What reading the folder has left with the allocator is no part of the program.
    crate::allocator::purge();
    Target::of(room.kind, threads, room.device.total_bytes.min(cap))
}

fn config(args: &Plan) -> Result<RunConfig, Failure> {
    let total_bytes = || match args.mac {
        Some(bytes) => bytes,
        None => super::train::total_bytes(&machine(&super::args::Script::default())),
    };
    let base = base_config(args.preset.as_deref(), args.config.as_deref(), total_bytes)?;
    let typed = RunConfig {
        folder: args.folder.clone(),
        effective_batch: args.effective_batch,
        ..RunConfig::default()
    };
    let typed = args
        .limits
        .over(args.computing.over(args.trained.over(typed)));
    let mut typed = args.texts.over(typed);
    // Another Mac trains on Metal.
    if let (None, Some(_)) = (&typed.device, args.mac) {
        typed.device = Some("metal".to_owned());
    }
    let config = args.weights.over(args.compression.over(typed)).over(base);
    config.validate()?;
    brought(config)
}

impl Row {
    fn blocks(&self) -> u32 {
        let planned = self
            .need
            .variants
            .first()
            .map_or(0, |form| form.checkpoint_blocks);
        self.suggested
            .as_ref()
            .map_or(planned, |config| config.checkpoint_blocks)
    }
}

impl Answer {
    /// What there is to know about sizes, of the row to be trained.
    fn notes(&self) -> Vec<String> {
        let row = &self.rows[self.chosen];
        match &row.suggested {
            Ok(found) => alignment(
                &row.forecast,
                row.blocks(),
                found.micro_batch,
                self.effective_batch,
            ),
            Err(_) => Vec::new(),
        }
    }

    fn refusal(&self, row: &Row, no: &DoesNotFit) -> Failure {
        trainer::forecast::does_not_fit(&row.forecast, no, self.room.device.memory_cap_bytes).into()
    }

    fn as_json(&self) -> Value {
        let row = |row: &Row| {
            let mut line = json!({
                "model": row.forecast.model, "resolution": row.forecast.resolution, "parameters": row.forecast.parameters,
                "state_bytes": row.need.state_bytes, "standing": row.forecast.standing, "precision": row.need.precision,
                "variants": row.need.variants, "parts": row.parts,
            });
            match &row.suggested {
                Ok(found) => line["suggested"] = json!(found),
                Err(no) => {
                    line["does_not_fit"] = json!(no);
                    let offers = options_needing_consent(&row.forecast.stuck(no)).into_iter();
                    line["offered"] = offers.map(|(recovery, bytes)| json!({"step": recovery.step, "description": recovery.description, "frees_bytes": bytes})).collect();
                }
            }
            line
        };
        let chosen = &self.rows[self.chosen];
        let mut line = json!({
            "subject": self.subject, "effective_batch": self.effective_batch, "optimizer": self.optimizer,
            "device": self.room.kind, "room": self.room.device, "processes": self.room.processes, "trainings": self.room.trainings,
            "assumed": self.room.assumed, "budget_bytes": self.room.budget_bytes(),
            "models": self.rows.iter().map(row).collect::<Vec<_>>(),
            "chosen": {"model": chosen.forecast.model, "resolution": chosen.forecast.resolution},
            "left_out": self.left_out.iter().map(|(model, side)| json!({"model": model, "resolution": side})).collect::<Vec<_>>(),
            "by_name": self.others, "notes": self.notes(), "forecast_ms": self.forecast_ms,
        });
        if let Some(time) = &self.seconds {
            line[format!("seconds_per_{}", time.of)] = time.seconds.into();
            line["seconds_from"] = time.from.into();
        }
        line
    }
}
