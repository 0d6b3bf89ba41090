//! Arguments of what tries settings on a folder: `ebb sweep-batch`, `ebb find-lr` and `ebb tune`. Knows no command's work.

use super::settings::{Settings, Shared};
use clap::Args;
use runlog::RunConfig;
use std::path::PathBuf;

/// What is tried, and on which machine.
#[derive(Args)]
pub struct Tried {
    /// Folder of photographs or texts, or a file of texts
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
    /// The config that every trial begins with.
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
    /// Samples a step, each worked in one piece
    #[arg(long, value_delimiter = ',', default_value = "4,8,16,24,32", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batches: Vec<u32>,
    /// Steps measured of each, after one that is not
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub steps: u64,
    /// Measure the cost of the memory controller: train with the automatic micro-batch and with these fixed ones, taking turns
    /// step by step; the largest of them is the effective batch
    #[arg(long, alias = "pilot", conflicts_with = "alone")]
    pub controller: bool,
    /// The one batch of a process of its own
    #[arg(long, hide = true)]
    pub alone: bool,
}

#[derive(Args)]
pub struct FindLr {
    #[command(flatten)]
    pub tried: Tried,
    /// Steps from the lowest rate to the highest
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(20..=10_000))]
    pub steps: u64,
    /// The highest rate; the lowest is a millionth of it
    #[arg(long, default_value_t = 1.0, value_name = "RATE")]
    pub highest: f64,
}

#[derive(Args)]
pub struct Tune {
    #[command(flatten)]
    pub tried: Tried,
    /// Settings tried at first
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Times each sees its samples in the first round; three times as often in each further one
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub epochs: u64,
}
