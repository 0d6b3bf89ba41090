//! The tokenizer of an exported folder.

use super::atomic_folder::write;
use super::config_json::pretty;
use super::trained_network::TokenizerFile;
use crate::error::Result;
use crate::hub_format::TOKENIZER;
use serde_json::{Value, json};
use std::path::Path;

/// Roles of special tokens in transformers.
const ROLES: [(&str, &str); 7] = [
    ("pad_token", "[PAD]"),
    ("unk_token", "[UNK]"),
    ("cls_token", "[CLS]"),
    ("sep_token", "[SEP]"),
    ("mask_token", "[MASK]"),
    ("bos_token", "<|endoftext|>"),
    ("eos_token", "<|endoftext|>"),
];

/// Writes the tokenizer, and its settings for texts of at most `tokens` tokens.
pub fn write_tokenizer(folder: &Path, tokenizer: &TokenizerFile, tokens: usize) -> Result<()> {
    write(folder, TOKENIZER, &tokenizer.json)?;
    let mut settings = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": tokens,
        "clean_up_tokenization_spaces": false,
    });
    let has = |token: &str| tokenizer.special_tokens.contains(&token);
    for (role, token) in ROLES {
        // Byte vocabularies have no named tokens, but one between documents.
        let is_boundary = token.starts_with('<') && tokenizer.boundary.is_some();
        if has(token) || (is_boundary && !has("[SEP]")) {
            settings[role] = json!(token);
        }
    }
    write_tokenizer_config(folder, &settings)
}

/// Writes the settings of a tokenizer.
pub fn write_tokenizer_config(folder: &Path, settings: &Value) -> Result<()> {
    write(folder, "tokenizer_config.json", pretty(settings))
}
