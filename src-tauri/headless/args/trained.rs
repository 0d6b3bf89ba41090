//! Arguments of whoever names a training, `ebb train` as `ebb plan`: what is trained, what computes it, and what of the memory it
//! may take. Knows no command's work.

use clap::Args;
use dataset::Task;
use runlog::{Blocks, RunConfig};
use std::ops::RangeInclusive;

/// What is trained.
#[derive(Args, Default)]
pub struct Trained {
    /// Guessed where absent
    #[arg(long, value_parser = task, value_name = "image-classification|text-classification|language-model|token-compression")]
    pub task: Option<Task>,
    /// convnet, vit_micro, resnet18, resnet34, resnet50, vit_tiny, vit_small or vit_base; for texts text_micro or text_mini;
    /// for documents gpt_micro, gpt_mini or gpt_small, to compress them compress_micro, compress_mini or compress_small
    #[arg(long)]
    pub model: Option<String>,
    /// Side of the square image in pixels
    #[arg(long, value_name = "PIXELS")]
    pub image_size: Option<u32>,
    /// adamw, adamw8bit (a quarter of the state) or sgd
    #[arg(long)]
    pub optimizer: Option<String>,
    /// Evaluate with a moving average of the weights, such as 0.999
    #[arg(long, value_name = "DECAY")]
    pub ema_decay: Option<f64>,
}

impl Trained {
    /// The same in a config.
    pub fn over(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            task: self.task.map(|task| task.name().to_owned()),
            model: self.model.clone(),
            image_size: self.image_size,
            optimizer: self.optimizer.clone(),
            ema_decay: self.ema_decay,
            ..config
        }
    }
}

/// What computes, and how.
#[derive(Args, Default)]
pub struct Computing {
    /// auto, metal, cuda or cpu
    #[arg(long)]
    pub device: Option<String>,
    /// f32, bf16 or f16; f64 on the CPU
    #[arg(long)]
    pub precision: Option<String>,
    /// Blocks that keep their input only and run again in backward
    #[arg(long, value_name = "N|all", value_parser = Blocks::parse)]
    pub checkpoint_blocks: Option<Blocks>,
    /// Threads of the CPU kernels
    #[arg(long)]
    pub threads: Option<u32>,
}

impl Computing {
    /// The same in a config.
    pub fn over(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            device: self.device.clone(),
            precision: self.precision.clone(),
            checkpoint_blocks: self.checkpoint_blocks,
            threads: self.threads,
            ..config
        }
    }
}

/// What of the memory may be taken.
#[derive(Args, Default)]
pub struct Limits {
    /// Largest footprint, such as 8GB
    #[arg(long, value_name = "SIZE", value_parser = runlog::parse_bytes)]
    pub memory_cap: Option<u64>,
    /// The same as a share of all memory, 0.1 to 0.95; 0.67 leaves a third to you
    #[arg(long, value_name = "SHARE", value_parser = memory_target)]
    pub memory_target: Option<f64>,
    /// Share of all memory that everybody together may fill, 0.5 to 0.95; less is kinder to other apps
    #[arg(long, alias = "politeness", value_name = "SHARE", value_parser = max_system_fraction)]
    pub max_system_fraction: Option<f64>,
}

impl Limits {
    /// The same in a config.
    pub fn over(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            memory_cap_bytes: self.memory_cap,
            memory_cap_fraction: self.memory_target,
            max_system_fraction: self.max_system_fraction,
            ..config
        }
    }
}

pub fn task(text: &str) -> Result<Task, String> {
    let named = Task::ALL.into_iter().find(|task| task.name() == text);
    named.ok_or_else(|| format!("write one of {}", Task::ALL.map(Task::name).join(", ")))
}

fn max_system_fraction(text: &str) -> Result<f64, String> {
    share(
        text,
        0.5..=0.95,
        "write a share from 0.5 to 0.95, such as 0.9",
    )
}

/// `--memory-target`: a share of all memory.
fn memory_target(text: &str) -> Result<f64, String> {
    share(
        text,
        0.1..=0.95,
        "write a share from 0.1 to 0.95, such as 0.67",
    )
}

fn share(text: &str, allowed: RangeInclusive<f64>, write: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| allowed.contains(share));
    share.ok_or_else(|| write.to_owned())
}
