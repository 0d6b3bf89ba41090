//! Declares the command line. Help, checks, completions and the man page are generated from these
//! declarations.

mod bench;
mod settings;
mod trials;
mod parse_args;
mod former_names;
mod unknown_flags;
mod inference;

use super::hosts::{Hosts, parse_interface};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

pub use self::bench::{Bench, Convolutions, VerifySplit};
pub use inference::{Chat, ChatModelChoice, Evaluate, Generate, Predict, Serve};
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

/// Version and commit, which all machines of a group have in common.
pub const BUILD: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("EBB_COMMIT"),
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
    /// Estimate the memory and time of a training before it starts
    Plan(Box<super::plan::Plan>),
    /// Train on a folder
    Train(Box<Train>),
    /// Continue a run from its newest checkpoint, or train a finished run for more epochs
    Resume(Resume),
    /// Start a new run from the weights of another run, with changed settings
    Branch(Branch),
    /// Evaluate the model of a run on held-out or new samples
    Evaluate(Evaluate),
    /// Classify images or texts, or compress texts
    Predict(Predict),
    /// Continue a text with a language model
    Generate(Generate),
    /// Talk with a language model, in the terminal
    Chat(Chat),
    /// Serve a language model to other programs on this machine, through the OpenAI chat API
    Serve(Serve),
    /// Write a run's weights for other programs: a Hugging Face folder, ONNX, Core ML or GGUF
    Export(super::export::Export),
    /// Check whether several machines can train together, and how fast
    Cluster(Cluster),
    /// List all runs, newest first, or show one
    Runs(Runs),
    /// Write one page with a run's curves, as SVG, PNG and PDF
    Report(Report),
    /// Show this machine's memory, live
    Memory(Memory),
    /// Run the memory controller on JSON lines from stdin
    #[command(alias = "pilot")]
    Controller(Controller),
    /// Occupy memory for a while, to watch how training reacts
    #[command(alias = "drill")]
    Stress(Stress),
    #[command(hide = true)]
    StressHold(StressHold),
    /// Check this machine and every operation on its GPU
    Doctor(Doctor),
    /// Check that splitting a batch into micro-batches does not change its gradient
    VerifySplit(VerifySplit),
    /// Measure the speed and memory of training steps, with built-in models
    Bench(Bench),
    /// Measure time and memory of several batch sizes on a folder
    SweepBatch(SweepBatch),
    /// Find a learning rate: raise it step by step and watch the loss
    FindLr(FindLr),
    /// Search for good training settings on a subset of a folder's samples
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
    /// Read every sample and list those that are the same or nearly the same
    #[arg(long)]
    pub find_duplicates: bool,
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
    pub hosts: OnHosts,
    #[command(flatten)]
    pub script: Script,
    /// Repeat an earlier run, with the same micro-batch sizes and checkpointed blocks at every
    /// step. If several processes trained the run, start the same number of processes; each process
    /// gets the same samples again
    #[arg(long, value_name = "RUN")]
    pub replay: Option<String>,
    /// A preset: quick, few_images, low_memory or token_compression
    #[arg(long)]
    pub preset: Option<String>,
    /// Config file in TOML or JSON; write - to read standard input
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Train on 100 samples for 2 epochs, to check that everything works
    #[arg(long)]
    pub dev_mode: bool,
    /// Before training, find a learning rate: try 100 steps with a rising rate, as `ebb find-lr`
    /// does
    #[arg(long)]
    pub find_learning_rate: bool,
    /// Folder in which to create the run folder, instead of Ebb's own folder of runs
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print each event as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Machines that train together.
#[derive(Args, Default)]
pub struct OnHosts {
    /// Machines that train together, such as localhost,air.local. If a machine has the samples in
    /// another folder, write this folder after the name of the machine, as in
    /// air.local=/data/birds. The list must include this machine, which stores the run folder
    #[arg(long, value_name = "HOSTS")]
    pub on: Option<Hosts>,
    /// Train with this many processes on this machine; each process uses its own NVIDIA GPU
    #[arg(long, value_name = "N", conflicts_with = "on", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub gpus: Option<u32>,
    /// Network interface that connects the machines, such as en0 or bridge0
    #[arg(long, value_name = "INTERFACE", requires = "on", value_parser = parse_interface)]
    pub over: Option<String>,
    /// Folder that contains the samples on this machine; `--on` passes this flag to other machines
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub folder_here: Option<PathBuf>,
}

#[derive(Args)]
pub struct Cluster {
    /// The machines, such as localhost,air.local
    #[arg(required_unless_present = "probe")]
    pub hosts: Option<Hosts>,
    /// Network interface that connects the machines, such as en0 or bridge0
    #[arg(long, value_name = "INTERFACE", value_parser = parse_interface)]
    pub over: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print facts about this machine, for Ebb on another machine
    #[arg(long, hide = true, conflicts_with = "hosts")]
    pub probe: bool,
}

/// Arguments for a simulated machine.
#[derive(Args, Default)]
pub struct Script {
    /// Read other apps' memory usage from this file instead of measuring it. Each line of the file
    /// is a JSON object, such as {"at_ms":0,"total_bytes":…,"others_bytes":…}
    #[arg(long, value_name = "FILE")]
    pub memory_script: Option<PathBuf>,
    /// Rule for moving to the next line of the memory script
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub memory_script_by: ScriptBy,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ScriptBy {
    /// Use each line once its at_ms has passed, in real time
    #[default]
    Time,
    /// Use one line for each decision of the memory controller
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
    /// Train until the run has completed this many epochs in total, more or fewer than planned. The
    /// samples have the same order as in a run of this length. From now on, the learning rate
    /// follows the schedule of a run of this length; in a finished run, the rate first rises again
    #[arg(long, value_name = "EPOCHS", conflicts_with = "steps", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub epochs: Option<u64>,
    /// Train until the run has completed this many optimizer steps in total; see --epochs
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub steps: Option<u64>,
    /// Folder of the run's samples, if you moved the samples or if this is another machine
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub hosts: OnHosts,
    #[command(flatten)]
    pub script: Script,
    /// Print each event as one line of JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Branch {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// Change a setting, such as --set epochs=5 or --set learning_rate=1e-4; may be repeated. The
    /// new run keeps the network, the samples and the split of the old run
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Start from the newest checkpoint instead of the best checkpoint
    #[arg(long)]
    pub newest: bool,
    #[command(flatten)]
    pub script: Script,
    /// Folder in which to create the run folder, instead of Ebb's own folder of runs
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print each event as one line of JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Runs {
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    /// List only runs with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum RunsCommand {
    /// Show one run; if it crashed, also show what happened in its last two minutes
    Show(Show),
    /// Add, remove or show the tags of a run
    Tag(Tag),
    /// Give a run another name
    Rename(RenameRun),
    /// Write or show the note of a run
    Note(NoteRun),
    /// Move a run to the trash, from which it can be restored
    Trash(TrashRun),
    /// Export a run with its checkpoints as one file, to copy it to another machine
    Export(ExportRun),
    /// Import a run from a file that `ebb runs export` created
    Import(ImportRun),
}

#[derive(Args)]
pub struct RenameRun {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// New name, at most 200 characters; an empty one restores the name of the dataset
    pub name: String,
}

#[derive(Args)]
pub struct NoteRun {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// New note; an empty one removes the note. If you leave it out, Ebb prints the current note
    pub text: Option<String>,
}

#[derive(Args)]
pub struct TrashRun {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
}

#[derive(Args)]
pub struct ExportRun {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// New file to write, such as birds.ebbrun
    pub file: PathBuf,
}

#[derive(Args)]
pub struct ImportRun {
    /// File that `ebb runs export` created
    pub file: PathBuf,
}

#[derive(Args)]
pub struct Tag {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// Tags to add, such as +final, and to remove, such as -draft
    #[arg(value_name = "+TAG|-TAG", allow_hyphen_values = true)]
    pub changes: Vec<String>,
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
    /// Amount of memory to take, such as 2GB [default: a quarter of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = runlog::parse_bytes)]
    pub size: Option<u64>,
    /// Number of seconds for which to hold the memory
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
    /// Also write the result as an HTML page to this new file, for example to attach it to an issue
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Compare only operations and models with this text in their names, for tests
    #[arg(long, value_name = "TEXT", hide = true)]
    pub only: Option<String>,
}

#[derive(Args, Default)]
pub struct App {
    /// Folder to train on, or run to show
    pub target: Option<PathBuf>,
    #[command(flatten)]
    pub script: Script,
}
