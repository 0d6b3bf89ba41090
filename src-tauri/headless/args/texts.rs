//! Arguments about texts alone: how they are read, and `ebb generate`. Knows no command's work.

use clap::Args;
use runlog::RunConfig;

/// How texts are read.
#[derive(Args, Default)]
pub struct Texts {
    /// Most tokens of a text, or the tokens of a window of documents
    #[arg(long)]
    pub tokens: Option<u32>,
    /// Different tokens learnt from labelled texts
    #[arg(long, value_name = "TOKENS")]
    pub vocabulary: Option<u32>,
    /// none, or balanced: rare classes count as much as frequent ones
    #[arg(long)]
    pub class_weights: Option<String>,
    /// Column of texts, by name or number
    #[arg(long, value_name = "COLUMN")]
    pub text_column: Option<String>,
    /// Column of labels, by name or number
    #[arg(long, value_name = "COLUMN")]
    pub label_column: Option<String>,
}

impl Texts {
    /// The same in a config.
    pub fn over(&self, config: RunConfig) -> RunConfig {
        RunConfig {
            tokens: self.tokens,
            vocabulary: self.vocabulary,
            class_weights: self.class_weights.clone(),
            text_column: self.text_column.clone(),
            label_column: self.label_column.clone(),
            ..config
        }
    }
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
