//! The command line, declared once: help and checks come from here.

mod compression;
mod measuring;
mod numbers;
mod texts;
mod trained;
mod tried;
mod typed;
mod used;
mod weights;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dataset::Task;
use std::path::PathBuf;
use trained::task;

pub use compression::Compression;
pub use measuring::{Bench, VerifySplit};
pub use numbers::Numbers;
pub use texts::{Generate, Texts};
pub use trained::{Computing, Limits, Trained};
pub use tried::{FindLr, SweepBatch, Tune};
pub use used::{Evaluate, Predict};
pub use weights::Weights;

/// Trains neural networks on your own computer without taking it over.
#[derive(Parser)]
#[command(
    name = "ebb",
    version,
    after_help = "Exit codes: 0 done or stopped by request, 1 failure, 2 wrong usage."
)]
pub struct Ebb {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Say what a folder is, and whether it can be trained
    Inspect(Inspect),
    /// Say what fits before anything trains
    Plan(Box<super::plan::Plan>),
    /// Train on a folder
    Train(Box<Train>),
    /// Go on with a run from its newest checkpoint
    Resume(Resume),
    /// Measure a run on a folder
    Evaluate(Evaluate),
    /// Say what photographs show, or texts are
    Predict(Predict),
    /// Let a language model write on
    Generate(Generate),
    /// Write a run's weights as a folder that PyTorch and transformers open
    Export(super::export::Export),
    /// List all runs, newest first, or show one
    Runs(Runs),
    /// Write a run's page as SVG and PNG
    Report(Report),
    /// Show this machine's memory, live
    Memory(Memory),
    /// Fly the controller from outside: JSON lines in, JSON lines out (docs/controller.md)
    Pilot(Pilot),
    /// Take memory for a while, to watch a training make room
    Drill(Drill),
    #[command(hide = true)]
    DrillHold(DrillHold),
    /// Check this machine and every operation on its GPU
    Doctor(Doctor),
    /// Show that the split of an effective batch does not change its gradient
    VerifySplit(VerifySplit),
    /// Measure training steps of fixed workloads
    Bench(Bench),
    /// Try several batches on a folder: time, memory, and which do not fit
    SweepBatch(SweepBatch),
    /// Find a learning rate: raise it step by step and watch the loss
    FindLr(FindLr),
    /// Search settings on a part of a folder, and keep the better ones
    Tune(Tune),
    /// Open the window
    App(App),
}

#[derive(Args)]
pub struct Inspect {
    /// Folder of photographs or texts, or a file of texts
    pub folder: PathBuf,
    #[command(flatten)]
    pub numbers: Numbers,
    /// Guessed where absent
    #[arg(long, value_parser = task, value_name = "image-classification|text-classification|language-model|token-compression")]
    pub task: Option<Task>,
    /// Column of texts, by name or number
    #[arg(long, value_name = "COLUMN")]
    pub text_column: Option<String>,
    /// Column of labels, by name or number
    #[arg(long, value_name = "COLUMN")]
    pub label_column: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Train {
    /// Folder with one sub-folder of photographs per class, or a folder or file of texts
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub trained: Trained,
    #[command(flatten)]
    pub weights: Weights,
    #[command(flatten)]
    pub texts: Texts,
    #[command(flatten)]
    pub compression: Compression,
    #[command(flatten)]
    pub numbers: Numbers,
    /// Times every sample is seen
    #[arg(long)]
    pub epochs: Option<u64>,
    /// Optimizer steps, in the place of epochs
    #[arg(long)]
    pub steps: Option<u64>,
    /// Samples a step; never changed by pressure
    #[arg(long, value_name = "SAMPLES")]
    pub effective_batch: Option<u32>,
    /// auto, or a fixed size for every piece
    #[arg(long, value_name = "auto|N", value_parser = micro_batch)]
    pub micro_batch: Option<MicroBatch>,
    /// Peak learning rate
    #[arg(long, value_name = "RATE")]
    pub learning_rate: Option<f64>,
    /// Decoupled weight decay
    #[arg(long, value_name = "DECAY")]
    pub weight_decay: Option<f64>,
    /// none, standard or randaugment
    #[arg(long)]
    pub augment: Option<String>,
    /// Mix photographs with one another: none, mixup, cutmix or both
    #[arg(long)]
    pub mix: Option<String>,
    /// Share of each target that goes to all classes alike, 0 to 0.99
    #[arg(long, value_name = "SHARE")]
    pub label_smoothing: Option<f64>,
    #[command(flatten)]
    pub computing: Computing,
    /// Threads that decode ahead; 0 decodes in the training thread
    #[arg(long)]
    pub workers: Option<u32>,
    #[command(flatten)]
    pub limits: Limits,
    #[command(flatten)]
    pub script: Script,
    /// Repeat the schedule of a recorded run: micro-batches, and blocks computed twice
    #[arg(long, value_name = "RUN")]
    pub replay: Option<String>,
    /// Seed of everything random
    #[arg(long)]
    pub seed: Option<u64>,
    /// A preset of the folder configs, such as quick or memory_small
    #[arg(long)]
    pub preset: Option<String>,
    /// A config file, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A quick run to see that everything works: few samples, few epochs
    #[arg(long)]
    pub dev_mode: bool,
    /// Train on this many samples only
    #[arg(long, value_name = "SAMPLES")]
    pub dev_samples: Option<u64>,
    /// 10min, 2epochs or 500steps
    #[arg(long, value_name = "RHYTHM")]
    pub checkpoint_every: Option<String>,
    /// Folder to keep the run in, instead of the store of all runs
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print the events, one JSON line each
    #[arg(long)]
    pub json: bool,
}

/// A scripted machine in the place of this one.
#[derive(Args, Default)]
pub struct Script {
    /// JSON lines of what other apps use: {"at_ms":0,"total_bytes":…,"others_bytes":…}
    #[arg(long, value_name = "FILE")]
    pub memory_script: Option<PathBuf>,
    /// How the script advances
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub memory_script_by: ScriptBy,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ScriptBy {
    /// By the clock
    #[default]
    Time,
    /// One line a decision
    Piece,
}

impl From<ScriptBy> for trainer::ScriptBy {
    fn from(by: ScriptBy) -> Self {
        match by {
            ScriptBy::Time => trainer::ScriptBy::Time,
            ScriptBy::Piece => trainer::ScriptBy::Piece,
        }
    }
}

/// `auto` or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MicroBatch {
    Auto,
    Fixed(u32),
}

fn micro_batch(text: &str) -> Result<MicroBatch, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(MicroBatch::Auto),
        (_, Ok(size)) if size >= 1 => Ok(MicroBatch::Fixed(size)),
        _ => Err("write auto, or a number of samples from 1 on".to_owned()),
    }
}

#[derive(Args)]
pub struct Resume {
    /// Id, beginning of a name, or path of a run
    pub run: String,
    #[command(flatten)]
    pub script: Script,
    /// Print the events, one JSON line each
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Runs {
    #[command(subcommand)]
    pub command: Option<OfRuns>,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum OfRuns {
    /// Show one run, and what happened in its last two minutes where it ended without a word
    Show(Show),
}

#[derive(Args)]
pub struct Show {
    /// Id, beginning of a name, or path of a run
    pub run: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Report {
    /// Id, beginning of a name, or path of a run
    pub run: String,
    /// Folder to write to, instead of the run's own
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

#[derive(Args)]
pub struct Memory {
    /// Print one reading and end
    #[arg(long)]
    pub once: bool,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub script: Script,
}

#[derive(Args)]
pub struct Pilot {
    #[command(flatten)]
    pub limits: Limits,
    /// auto, or a fixed size for every piece
    #[arg(long, value_name = "auto|N", value_parser = micro_batch)]
    pub micro_batch: Option<MicroBatch>,
}

#[derive(Args)]
pub struct Drill {
    /// How much, such as 2GB; a quarter of what is available when absent
    #[arg(long, value_name = "SIZE", value_parser = runlog::parse_bytes)]
    pub size: Option<u64>,
    /// How long
    #[arg(long, default_value_t = crate::drill::SECONDS, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
}

/// The process behind a drill.
#[derive(Args)]
pub struct DrillHold {
    pub bytes: u64,
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
}

#[derive(Args)]
pub struct Doctor {
    /// auto, metal, cuda or cpu
    #[arg(long)]
    pub device: Option<String>,
}

#[derive(Args, Default)]
pub struct App {
    /// Folder to train on, or a run to look at
    pub target: Option<PathBuf>,
    #[command(flatten)]
    pub script: Script,
}
