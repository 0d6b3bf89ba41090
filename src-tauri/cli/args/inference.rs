//! Arguments of the commands that use a trained run: `ebb evaluate`, `ebb predict`, `ebb
//! generate`, `ebb chat` and `ebb serve`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use runlog::Quantize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use trainer::GenerationOptions;

#[derive(Args)]
pub struct Evaluate {
    /// The run: its id, the beginning of its name, or its path. For a file of questions, you can
    /// give a model instead: a folder with config.json, a GGUF file, or org/name of a model to
    /// download
    #[arg(value_name = "RUN|MODEL")]
    pub run: String,
    /// New samples (a folder or a file), or questions for a language model (a .jsonl file with
    /// choices or answers) [default: the run's test samples; if it has none, its held-out samples]
    #[arg(value_name = "FOLDER|QUESTIONS")]
    pub folder: Option<PathBuf>,
    /// Use the baseline of the run instead of its network. The baseline is a simple model of the
    /// edges and colors of images, or of the n-grams of texts
    #[arg(long)]
    pub baseline: bool,
    /// List the choices in the question as A, B, C, and compare the likelihoods of these letters
    /// instead of the likelihoods of the choices
    #[arg(long)]
    pub letters: bool,
    /// Compare only the part of each answer that this regular expression matches; if the expression
    /// has a group, compare only the first group
    #[arg(long, value_name = "REGEX")]
    pub extract: Option<String>,
    /// Maximum number of tokens of an answer to a question
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: u32,
    /// Store the weights of a model in 8 bits or in 4 bits (nf4 or 4), which needs less memory; nf4
    /// is usually more exact than 4
    #[arg(long, value_name = "8|nf4|4")]
    pub quantize: Option<Quantize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Predict {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// Image files, or texts if the run was trained on texts. A text may also be the name of a text
    /// file. From a folder, Ebb reads every file
    #[arg(required = true, value_name = "IMAGE|TEXT|FOLDER", value_parser = maybe_empty())]
    pub files: Vec<PathBuf>,
    /// Predict each row of a table from the text in this column
    #[arg(long, value_name = "COLUMN")]
    pub text_column: Option<String>,
    /// Number of classes to print for each image or text
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub top: u32,
    /// Use the baseline of the run instead of its network. The baseline is a simple model of the
    /// edges and colors of images, or of the n-grams of texts
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
    #[command(flatten)]
    pub sampling: Sampling,
}

#[derive(Args)]
pub struct Chat {
    #[command(flatten)]
    pub model: ChatModelChoice,
    /// Also print the answers of the model that the run started from, or of another run or model
    #[arg(long, value_name = "RUN|MODEL", num_args = 0..=1)]
    pub compare: Option<Option<String>>,
    /// System prompt: what the model should know or follow in the whole conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Maximum number of tokens of an answer
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: u32,
    #[command(flatten)]
    pub sampling: Sampling,
}

#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    pub model: ChatModelChoice,
    /// Port to listen on; with 0, Ebb chooses a free port
    #[arg(long, default_value_t = 8_080, value_name = "PORT")]
    pub port: u16,
    /// Maximum number of tokens of an answer if the request sets no maximum
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: u32,
}

/// A language model, and how it is loaded.
#[derive(Args)]
pub struct ChatModelChoice {
    /// The run: its id, the beginning of its name, or its path. Or a model: a folder with
    /// config.json, a GGUF file, or org/name of a model to download
    #[arg(value_name = "RUN|MODEL")]
    pub model: String,
    /// Maximum number of tokens of the conversation [default: 4096, or fewer if the model reads
    /// fewer]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(8..))]
    pub context: Option<u32>,
    /// Store the weights of a model in 8 bits or in 4 bits (nf4 or 4), which needs less memory; nf4
    /// is usually more exact than 4
    #[arg(long, value_name = "8|nf4|4")]
    pub quantize: Option<Quantize>,
}

/// How tokens are chosen.
#[derive(Args)]
pub struct Sampling {
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

impl Sampling {
    /// The options to generate at most `tokens` tokens.
    pub fn options(&self, tokens: usize) -> GenerationOptions {
        GenerationOptions {
            tokens,
            temperature: self.temperature,
            top_k: self.top_k.map(|top_k| top_k as usize),
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            stop: self.stop.clone(),
            seed: self.seed,
        }
    }
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
