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
