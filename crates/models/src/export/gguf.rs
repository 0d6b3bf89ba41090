//! The parts of a GGUF file: the description of the network, its tensors and its vocabulary.

mod description;
mod tensors;
mod tokenizer_checks;
mod vocabulary;

pub(super) use description::Description;
pub(super) use tensors::{WeightTypes, tensors};
pub(super) use vocabulary::Vocabulary;

use crate::error::ModelError;

/// How the matrices of a GGUF file are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GgufWeights {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 8 bits per value, in blocks of 32.
    Q8_0,
    /// About 4.8 bits per value: 4 bits, and 6 bits for the matrices that suffer most.
    Q4KM,
}

impl GgufWeights {
    /// The name in llama.cpp, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            GgufWeights::F32 => "f32",
            GgufWeights::F16 => "f16",
            GgufWeights::Q8_0 => "q8_0",
            GgufWeights::Q4KM => "q4_k_m",
        }
    }
}

/// How a model chats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChatFormat {
    /// Its chat template.
    pub template: Option<String>,
    /// The token, or the text, that ends an answer.
    pub answer_end: Option<String>,
}

/// The error for a network that llama.cpp would compute in another way.
fn refuse(what: &str) -> ModelError {
    ModelError::NotExportable(format!(
        "llama.cpp cannot compute this model: {what}. Export it as a Hugging Face folder instead."
    ))
}
