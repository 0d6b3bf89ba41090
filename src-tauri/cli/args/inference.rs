//! Arguments of the commands that use a trained run: `ebb evaluate`, `ebb predict` and `ebb
//! generate`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ops::RangeInclusive;
use std::path::PathBuf;

#[derive(Args)]
pub struct Evaluate {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// Folder or file of new samples [default: the run's test samples, or its held-out samples]
    pub folder: Option<PathBuf>,
    /// Use only the baseline of the run, without its network
    #[arg(long)]
    pub baseline: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Predict {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// Image files, or texts if the run was trained on texts. A text may also be the name of a text
    /// file. A folder means every file in the folder
    #[arg(required = true, value_name = "IMAGE|TEXT|FOLDER", value_parser = maybe_empty())]
    pub files: Vec<PathBuf>,
    /// Number of classes to print for each image or text
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub top: u32,
    /// Use only the baseline of the run, without its network
    #[arg(long)]
    pub baseline: bool,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
    /// Print the predictions as a CSV table
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

#[derive(Args)]
pub struct Generate {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// Text to continue
    #[arg(long, default_value = "")]
    pub prompt: String,
    /// Maximum number of tokens to generate
    #[arg(long, default_value_t = 200)]
    pub tokens: usize,
    /// Sampling temperature; 0 always takes the most probable token
    #[arg(long, default_value_t = 0.8, value_parser = temperature)]
    pub temperature: f64,
    /// Sample only from the N most probable tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top_k: Option<u32>,
    /// Sample only from the most probable tokens whose probabilities add up to P
    #[arg(long, value_name = "P", value_parser = probability)]
    pub top_p: Option<f64>,
    /// Sample only from tokens with at least P times the highest probability
    #[arg(long, value_name = "P", value_parser = probability)]
    pub min_p: Option<f64>,
    /// Make tokens that the text already contains less probable; 1 changes nothing
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = repetition_penalty)]
    pub repetition_penalty: f64,
    /// Stop before this text; can be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Random seed of the sampling
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
}

/// Parses an argument that may be empty, so that an empty text is reported and does not prevent the
/// predictions for the other texts.
fn maybe_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

fn temperature(text: &str) -> Result<f64, String> {
    number_in(text, 0.0..=10.0).ok_or_else(|| "write a number from 0 to 10, such as 0.8".to_owned())
}

fn probability(text: &str) -> Result<f64, String> {
    number_in(text, 0.0..=1.0).ok_or_else(|| "write a number from 0 to 1, such as 0.9".to_owned())
}

fn repetition_penalty(text: &str) -> Result<f64, String> {
    number_in(text, 1.0..=10.0).ok_or_else(|| "write a number from 1 to 10, such as 1.1".to_owned())
}

fn number_in(text: &str, range: RangeInclusive<f64>) -> Option<f64> {
    let number = text.parse().ok()?;
    range.contains(&number).then_some(number)
}
