//! A trained network, as the exporters need it.

use crate::catalog::ModelId;
use crate::pretrained::Pretrained;
use serde::Serialize;
use tape::Parameters;

/// A trained network with the names of its outputs.
pub struct TrainedNetwork<'a> {
    /// Its row in the catalog.
    pub model: ModelId,
    /// Side of its images in pixels, or most tokens of its texts.
    pub input_size: u32,
    /// Class names in label order.
    pub classes: &'a [String],
    /// Its regression targets, in the order of the outputs after the classes.
    pub targets: &'a [RegressionTarget],
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// The weights it was fine-tuned from; `None` if it was trained from scratch.
    pub pretrained: Option<&'a Pretrained>,
    /// The tokenizer of its texts; `None` for image networks.
    pub tokenizer: Option<&'a TokenizerFile>,
}

/// A regression target. The network outputs `(value - mean) / deviation`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RegressionTarget {
    /// Name of its column.
    pub name: String,
    /// Mean of the training samples, in the unit of the column.
    pub mean: f64,
    /// Standard deviation of the training samples, in the unit of the column.
    pub deviation: f64,
    /// Number of training samples that have a value.
    pub present: u64,
    /// Smallest and largest value of the training samples.
    pub range: (f64, f64),
}

/// A tokenizer in the format of the `tokenizers` library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerFile {
    /// Contents of `tokenizer.json`.
    pub json: String,
    /// Id of the token between documents, if there is one.
    pub boundary: Option<u32>,
    /// Those of [`TokenizerFile::SPECIAL_TOKENS`] that the vocabulary has.
    pub special_tokens: Vec<&'static str>,
}

impl TokenizerFile {
    /// Special tokens that transformers asks for.
    pub const SPECIAL_TOKENS: [&'static str; 6] = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "<|endoftext|>",
    ];
}

impl TrainedNetwork<'_> {
    /// Names of the classes, then of the regression targets.
    pub(super) fn output_names(&self) -> Vec<String> {
        let targets = self.targets.iter().map(|target| target.name.clone());
        self.classes.iter().cloned().chain(targets).collect()
    }
}
