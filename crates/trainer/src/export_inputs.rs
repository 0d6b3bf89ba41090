//! What an export takes from a dataset: its regression targets and its tokenizer, as plain values.

use crate::error::Result;
use dataset::{TargetColumn, Tokenizer};
use models::export::{RegressionTarget, TokenizerFile};

/// Regression targets of a run.
pub(crate) fn regression_targets(columns: &[TargetColumn]) -> Vec<RegressionTarget> {
    columns
        .iter()
        .map(|column| RegressionTarget {
            name: column.name.clone(),
            mean: column.mean,
            deviation: column.deviation,
            present: column.present,
            range: column.range,
        })
        .collect()
}

/// The tokenizer of a run.
///
/// # Errors
/// The tokenizers library cannot write it.
pub fn tokenizer_file(tokenizer: &Tokenizer) -> Result<TokenizerFile> {
    let has = |token: &&'static str| tokenizer.token(token).is_some();
    Ok(TokenizerFile {
        json: tokenizer.to_exported_json()?,
        boundary: tokenizer.boundary(),
        special_tokens: TokenizerFile::SPECIAL_TOKENS
            .into_iter()
            .filter(has)
            .collect(),
    })
}
