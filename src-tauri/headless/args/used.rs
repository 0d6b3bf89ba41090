//! Arguments of what puts a run to use: `ebb evaluate` and `ebb predict`. Knows no command's work.

use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct Evaluate {
    /// Id, beginning of a name, or path of a run
    pub run: String,
    /// Folder with the same classes; absent, the run's own test part, or what it held out
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Predict {
    /// Id, beginning of a name, or path of a run
    pub run: String,
    /// Photographs; for a run that has learnt texts, the texts themselves; for one that compresses, texts or files of them
    #[arg(required = true, value_name = "PHOTOGRAPH|TEXT")]
    pub files: Vec<PathBuf>,
    /// Classes shown for each
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub top: u32,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Generate {
    /// Id, beginning of a name, or path of a run
    pub run: String,
    /// What the text begins with
    #[arg(long, default_value = "")]
    pub prompt: String,
    /// Most tokens written
    #[arg(long, default_value_t = 200)]
    pub tokens: usize,
    /// Below 1 the likely becomes likelier; 0 always takes the likeliest
    #[arg(long, default_value_t = 0.8, value_parser = temperature)]
    pub temperature: f64,
    /// Draw from so many of the likeliest tokens only
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub top_k: Option<u32>,
    /// Seed of the draws
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
}

fn temperature(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|value| (0.0..=10.0).contains(value));
    value.ok_or_else(|| "write a number from 0 to 10, such as 0.8".to_owned())
}
