//! Arguments of the commands that train a folder several times: `ebb sweep-batch`, `ebb find-lr`
//! and `ebb tune`.

use super::settings::{Settings, Shared};
use crate::cli::config_file::read_config;
use clap::Args;
use runlog::RunConfig;
use std::path::PathBuf;

/// The folder, and the settings that all runs share.
#[derive(Args)]
pub struct Tried {
    /// Folder of images or texts, or a file of texts
    pub folder: PathBuf,
    #[command(flatten)]
    pub settings: Settings<Shared>,
    /// Config file in TOML or JSON; write - to read standard input
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Tried {
    /// The config that all runs share. Prints a message for each key that has another name today.
    pub fn config(&self) -> Result<RunConfig, runlog::RunlogError> {
        let typed = RunConfig {
            folder: Some(self.folder.clone()),
            ..RunConfig::default()
        };
        let file = read_config(self.config.as_deref())?;
        Ok(typed.over(self.settings.over(file)))
    }
}

#[derive(Args)]
pub struct SweepBatch {
    #[command(flatten)]
    pub tried: Tried,
    /// Batch sizes to measure; each batch is one micro-batch
    #[arg(long, value_delimiter = ',', default_value = "4,8,16,24,32", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batches: Vec<u32>,
    /// Steps to measure for each size, after a warm-up step
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub steps: u64,
    /// Compare the memory controller with fixed micro-batches. The runs take turns: one with
    /// automatic micro-batches, and one with each size in --batches. All runs have the same
    /// effective batch: the largest size in --batches
    #[arg(long, alias = "pilot", conflicts_with = "alone")]
    pub controller: bool,
    /// Measure only the first batch size, in this process
    #[arg(long, hide = true)]
    pub alone: bool,
}

#[derive(Args)]
pub struct FindLr {
    #[command(flatten)]
    pub tried: Tried,
    /// Number of training steps from the lowest learning rate to the highest
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(20..=10_000))]
    pub steps: u64,
    /// Highest learning rate; the lowest is one millionth of this rate
    #[arg(long, default_value_t = 1.0, value_name = "RATE")]
    pub highest: f64,
}

#[derive(Args)]
pub struct Tune {
    #[command(flatten)]
    pub tried: Tried,
    /// Number of trials in the first round
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Epochs per trial in the first round; each further round triples this number
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub epochs: u64,
    /// End the search after this many minutes and use the best trial so far
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// After the search, train a run with the best settings on all samples
    #[arg(long)]
    pub train: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    let value = text.parse().ok();
    let value = value.filter(|value| (0.0..=1e6).contains(value));
    value.ok_or_else(|| "write a number of minutes, such as 30".to_owned())
}
