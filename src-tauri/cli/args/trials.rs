//! Arguments of the commands that train a folder several times: `ebb sweep-batch`, `ebb find-lr`
//! and `ebb tune`.

use super::settings::{Settings, Shared};
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
    /// A config file, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Tried {
    /// The config that all runs share.
    pub fn config(&self) -> Result<RunConfig, runlog::RunlogError> {
        let typed = RunConfig {
            folder: Some(self.folder.clone()),
            ..RunConfig::default()
        };
        let file = self.config.as_deref().map(RunConfig::load).transpose()?;
        Ok(typed.over(self.settings.over(file.unwrap_or_default())))
    }
}

#[derive(Args)]
pub struct SweepBatch {
    #[command(flatten)]
    pub tried: Tried,
    /// Batch sizes to measure, each in one micro-batch
    #[arg(long, value_delimiter = ',', default_value = "4,8,16,24,32", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batches: Vec<u32>,
    /// Steps to measure for each size, after a warm-up step
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub steps: u64,
    /// Compare the memory controller with fixed micro-batches. The runs take turns: one with
    /// automatic micro-batches, and one with each size of --batches. The largest size is the
    /// effective batch
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
    /// Trials in the first round
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Epochs per trial in the first round; each further round has three times as many epochs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub epochs: u64,
}
