//! The architectures of llama.cpp that Ebb reads.

use super::header::GgufHeader;
use crate::error::Result;

/// An architecture of llama.cpp.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    /// Its name in llama.cpp.
    pub architecture: &'static str,
    /// Its name in the transformers library.
    pub model_type: &'static str,
    /// Whether it rotates neighboring values of a head, instead of values half a head apart.
    pub rotates_neighbors: bool,
    /// Whether it is a Gemma: four norms per block, with weights around 1 in the file.
    pub is_gemma: bool,
}

const fn family(architecture: &'static str, model_type: &'static str) -> Family {
    Family {
        architecture,
        model_type,
        rotates_neighbors: false,
        is_gemma: false,
    }
}

// tidy: table
#[rustfmt::skip]
const FAMILIES: [Family; 8] = [
    Family { rotates_neighbors: true, ..family("llama", "llama") },
    family("qwen2", "qwen2"),
    family("qwen3", "qwen3"),
    Family { is_gemma: true, ..family("gemma2", "gemma2") },
    Family { is_gemma: true, ..family("gemma3", "gemma3_text") },
    family("phi3", "phi3"),
    Family { rotates_neighbors: true, ..family("smollm3", "smollm3") },
    family("olmo2", "olmo2"),
];

/// The architecture of the file.
///
/// # Errors
/// It is not known.
pub(super) fn family_of(header: &GgufHeader) -> Result<Family> {
    let name = header.text("general.architecture")?.unwrap_or_default();
    let found = FAMILIES.iter().find(|family| family.architecture == name);
    found.copied().ok_or_else(|| {
        let names = FAMILIES.map(|family| family.architecture);
        header.refuse(format!(
            "the architecture is {name:?}, but Ebb reads only {}; choose a GGUF file of one of these architectures, or the Hugging Face folder of the model",
            names.join(", ")
        ))
    })
}
