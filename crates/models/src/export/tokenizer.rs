//! The tokenizer of an exported folder.

use super::atomic_folder::write;
use super::config_json::pretty;
use super::trained_network::TokenizerFile;
use crate::error::{Result, at};
use crate::hub_format::{CHAT_FILES, TOKENIZER};
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

/// Copies the chat template of a model, the settings of its tokenizer and the names of its special
/// tokens, as far as there are any. Returns whether there were settings.
pub fn copy_chat_files(from: &Path, to: &Path) -> Result<bool> {
    for name in CHAT_FILES {
        let file = from.join(name);
        if file.is_file() {
            disk::copy(&file, &to.join(name)).map_err(at(&file))?;
        }
    }
    Ok(to.join("tokenizer_config.json").is_file())
}

/// Writes the settings of a tokenizer.
pub fn write_tokenizer_config(folder: &Path, settings: &Value) -> Result<()> {
    write(folder, "tokenizer_config.json", pretty(settings))
}
