//! The command line, declared once: help and checks come from here.

mod bench;
mod settings;
mod tried;
mod typed;
mod used;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

pub use self::bench::{Bench, VerifySplit};
pub use settings::{Controlled, Everything, Planned, Read, Settings};
pub use tried::{FindLr, SweepBatch, Tune};
pub use used::{Evaluate, Generate, Predict};

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
    #[command(alias = "pilot")]
    Controller(Controller),
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
    /// Print shell completions
    Completions(Completions),
    /// Print a man page
    Man,
    /// Open the window
    App(App),
}

#[derive(Args)]
pub struct Completions {
    /// Shell to complete commands in
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct Inspect {
    /// Folder of photographs or texts, or a file of texts
    pub folder: PathBuf,
    #[command(flatten)]
    pub settings: Settings<Read>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Train {
    /// Folder with one sub-folder of photographs per class, or a folder or file of texts
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings<Everything>,
    #[command(flatten)]
    pub script: Script,
    /// Repeat the schedule of a recorded run: micro-batches, and blocks computed twice
    #[arg(long, value_name = "RUN")]
    pub replay: Option<String>,
    /// A preset of the folder configs, such as quick or memory_small
    #[arg(long)]
    pub preset: Option<String>,
    /// A config file, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A quick run to see that everything works: few samples, few epochs
    #[arg(long)]
    pub dev_mode: bool,
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
            ScriptBy::Piece => trainer::ScriptBy::Decision,
        }
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
pub struct Controller {
    #[command(flatten)]
    pub settings: Settings<Controlled>,
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
    /// Device: auto, metal, cuda or cpu
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
