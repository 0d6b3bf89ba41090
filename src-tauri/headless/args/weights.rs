//! Arguments about published weights: what a training begins with, and what of it trains. Knows no command's work.

use clap::Args;
use runlog::RunConfig;
use std::path::PathBuf;

/// What a training begins with.
#[derive(Args, Default)]
pub struct Weights {
    /// Begin with the weights of a Hugging Face folder: BERT, ViT, DeiT, DINOv2, ResNet or GPT-2. A name such as org/model is
    /// fetched once from the hub that the environment variable HF_ENDPOINT names
    #[arg(long, value_name = "FOLDER|ORG/MODEL")]
    pub from: Option<PathBuf>,
    /// What of them trains: head (the new one alone), last:N blocks, or all
    #[arg(long, value_name = "head|last:N|all")]
    pub train_only: Option<String>,
    /// Freeze them, and train adapters of this rank beside their maps (LoRA)
    #[arg(long, value_name = "RANK")]
    pub adapter: Option<u32>,
    /// Adapters count this much over their rank; twice the rank when absent
    #[arg(long, value_name = "ALPHA")]
    pub adapter_alpha: Option<f64>,
    /// Hold what is frozen in so many bits: less memory, a little less exact
    #[arg(long, value_name = "8|4")]
    pub quantize: Option<u32>,
}

impl Weights {
    /// The same in a config.
    pub fn over(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            from: self.from.clone(),
            train_only: self.train_only.clone(),
            adapter_rank: self.adapter,
            adapter_alpha: self.adapter_alpha,
            quantize: self.quantize,
            ..config
        }
    }
}
