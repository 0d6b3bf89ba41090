//! The command line, declared once: help, checks, completions and the man page come from here.

mod bench;
mod settings;
mod trials;
mod parse;
mod inference;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

pub use self::bench::{Bench, VerifySplit};
pub use inference::{Evaluate, Generate, Predict};
pub use settings::{Controlled, Everything, Planned, Read, Settings};
pub use trials::{FindLr, SweepBatch, Tune};

/// Version, commit and features, as `ebb --version` prints them.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("EBB_COMMIT"),
    ", features: ",
    env!("EBB_FEATURES"),
    ")"
);

/// Trains neural networks on your own computer without taking it over.
#[derive(Parser)]
#[command(
    name = "ebb",
    version = VERSION,
    after_help = "Exit codes: 0 done or stopped by request, 1 failure, 2 wrong usage."
)]
pub struct Ebb {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Describe a folder, and check whether Ebb can train on it
    Inspect(Inspect),
    /// Estimate memory and time before anything trains
    Plan(Box<super::plan::Plan>),
    /// Train on a folder
    Train(Box<Train>),
    /// Continue a run from its newest checkpoint
    Resume(Resume),
    /// Evaluate the model of a run on held-out or new samples
    Evaluate(Evaluate),
    /// Classify images or texts, or compress texts
    Predict(Predict),
    /// Continue a text with a language model
    Generate(Generate),
    /// Write a run's weights for other programs: a Hugging Face folder, ONNX or Core ML
    Export(super::export::Export),
    /// List all runs, newest first, or show one
    Runs(Runs),
    /// Write one page with a run's curves, as SVG, PNG and PDF
    Report(Report),
    /// Show this machine's memory, live
    Memory(Memory),
    /// Run the memory controller on JSON lines from stdin
    #[command(alias = "pilot")]
    Controller(Controller),
    /// Take memory for a while, to watch how training reacts
    #[command(alias = "drill")]
    Stress(Stress),
    #[command(hide = true)]
    StressHold(StressHold),
    /// Check this machine and every operation on its GPU
    Doctor(Doctor),
    /// Check that splitting a batch does not change its gradient
    VerifySplit(VerifySplit),
    /// Measure the speed and memory of training steps, with built-in models
    Bench(Bench),
    /// Measure time and memory of several batch sizes on a folder
    SweepBatch(SweepBatch),
    /// Find a learning rate: raise it step by step and watch the loss
    FindLr(FindLr),
    /// Search for good training settings, with some samples of a folder
    Tune(Tune),
    /// Print shell completions
    Completions(Completions),
    /// Print a man page
    Man,
    /// Open the window
    App(App),
}

#[derive(Args)]
pub struct Completions {
    /// Shell to generate completions for
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct Inspect {
    /// Folder of images or texts, or a file of texts
    pub folder: PathBuf,
    #[command(flatten)]
    pub settings: Settings<Read>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Train {
    /// Folder with one sub-folder of images per class, or a folder or file of texts
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings<Everything>,
    #[command(flatten)]
    pub script: Script,
    /// Repeat an earlier run: use its micro-batch sizes and checkpointed blocks at every step
    #[arg(long, value_name = "RUN")]
    pub replay: Option<String>,
    /// A preset: quick, few_images, low_memory or token_compression
    #[arg(long)]
    pub preset: Option<String>,
    /// A config file, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Train on 100 samples for 2 epochs, to check that everything works
    #[arg(long)]
    pub dev_mode: bool,
    /// Folder in which to create the run folder, instead of Ebb's own folder of runs
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print the events, one JSON line each
    #[arg(long)]
    pub json: bool,
}

/// Arguments for a simulated machine.
#[derive(Args, Default)]
pub struct Script {
    /// Read other apps' memory usage from this file instead of measuring it. One JSON object per
    /// line, such as {"at_ms":0,"total_bytes":…,"others_bytes":…}
    #[arg(long, value_name = "FILE")]
    pub memory_script: Option<PathBuf>,
    /// When Ebb moves to the next line of the memory script
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub memory_script_by: ScriptBy,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ScriptBy {
    /// In real time, at the times that the memory script gives
    #[default]
    Time,
    /// One line for each decision of the memory controller
    #[value(alias = "piece")]
    Decision,
}

impl From<ScriptBy> for trainer::ScriptBy {
    fn from(by: ScriptBy) -> Self {
        match by {
            ScriptBy::Time => trainer::ScriptBy::Time,
            ScriptBy::Decision => trainer::ScriptBy::Decision,
        }
    }
}

#[derive(Args)]
pub struct Resume {
    /// The run: its id, the beginning of its name, or its path
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
    pub command: Option<RunsCommand>,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum RunsCommand {
    /// Show one run, and its last two minutes if it crashed
    Show(Show),
}

#[derive(Args)]
pub struct Show {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Report {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// Folder to write to, instead of the run's folder
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

#[derive(Args)]
pub struct Memory {
    /// Print the memory usage once and exit
    #[arg(long)]
    pub once: bool,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub script: Script,
}

#[derive(Args)]
pub struct Controller {
    #[command(flatten)]
    pub settings: Settings<Controlled>,
}

#[derive(Args)]
pub struct Stress {
    /// How much memory to take, such as 2GB [default: a quarter of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = runlog::parse_bytes)]
    pub size: Option<u64>,
    /// How long to hold the memory, in seconds
    #[arg(long, default_value_t = crate::stress_test::SECONDS, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
}

/// Arguments of the child process that allocates memory during a stress test.
#[derive(Args)]
pub struct StressHold {
    pub bytes: u64,
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
}

#[derive(Args)]
pub struct Doctor {
    /// Device to check: auto, metal, cuda or cpu
    #[arg(long)]
    pub device: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Default)]
pub struct App {
    /// Folder to train on, or run to show
    pub target: Option<PathBuf>,
    #[command(flatten)]
    pub script: Script,
}
