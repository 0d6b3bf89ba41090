//! Arguments of a token compression. Knows no command's work.

use clap::Args;
use runlog::RunConfig;

/// How tokens are left out.
#[derive(Args, Default)]
pub struct Compression {
    /// Who chooses the tokens that are kept: learned, random, every-kth or frequency
    #[arg(long)]
    pub policy: Option<String>,
    /// What a learned policy learns by: gumbel, policy-gradient or joint
    #[arg(long, value_name = "HOW")]
    pub policy_learning: Option<String>,
    /// Share of the tokens of each window that is kept
    #[arg(long, alias = "kept-fraction", value_name = "SHARE")]
    pub keep_fraction: Option<f64>,
    /// What a kept token costs in nats; without --keep-fraction the policy weighs it
    #[arg(long, alias = "kept-cost", value_name = "NATS")]
    pub keep_cost: Option<f64>,
    /// Temperature of the policy's choices at the first step
    #[arg(long)]
    pub temperature: Option<f64>,
    /// The same at the last step
    #[arg(long, alias = "last-temperature", value_name = "TEMPERATURE")]
    pub final_temperature: Option<f64>,
}

impl Compression {
    /// What was typed, over `config`.
    pub fn over(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            policy: self.policy.clone(),
            policy_learning: self.policy_learning.clone(),
            keep_fraction: self.keep_fraction,
            keep_cost: self.keep_cost,
            temperature: self.temperature,
            final_temperature: self.final_temperature,
            ..RunConfig::default()
        }
        .over(config)
    }
}
