//! The number of checkpointed blocks as the user writes it: a number, or `all`.

use crate::RunlogError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest accepted number; no network in Ebb has more blocks.
pub(crate) const MAX_COUNT: u64 = 10_000;

/// A number of blocks to checkpoint: their activations are recomputed in the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum CheckpointBlocks {
    /// The first `n` blocks.
    Count(u32),
    /// All blocks of the network.
    All,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Count(u32),
    Word(String),
}

impl CheckpointBlocks {
    /// Parses `all` or a number of at least 0.
    ///
    /// # Errors
    /// If the text is neither, or the number is greater than 10,000.
    pub fn parse(text: &str) -> Result<CheckpointBlocks, RunlogError> {
        match (text, text.parse()) {
            ("all", _) => Ok(CheckpointBlocks::All),
            (_, Ok(count)) if u64::from(count) <= MAX_COUNT => Ok(CheckpointBlocks::Count(count)),
            _ => Err(RunlogError::InvalidBlocks { text: text.into() }),
        }
    }

    /// Resolves the number for a network with this many blocks; `None` if the network has fewer.
    pub fn resolve(self, blocks: u32) -> Option<u32> {
        match self {
            CheckpointBlocks::All => Some(blocks),
            CheckpointBlocks::Count(count) => Some(count).filter(|count| *count <= blocks),
        }
    }
}

impl TryFrom<Written> for CheckpointBlocks {
    type Error = RunlogError;

    fn try_from(written: Written) -> Result<CheckpointBlocks, RunlogError> {
        match written {
            Written::Count(count) => Ok(CheckpointBlocks::Count(count)),
            Written::Word(word) => CheckpointBlocks::parse(&word),
        }
    }
}

impl From<CheckpointBlocks> for Written {
    fn from(blocks: CheckpointBlocks) -> Written {
        match blocks {
            CheckpointBlocks::Count(count) => Written::Count(count),
            CheckpointBlocks::All => Written::Word("all".into()),
        }
    }
}

impl fmt::Display for CheckpointBlocks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointBlocks::Count(count) => write!(out, "{count}"),
            CheckpointBlocks::All => write!(out, "all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_or_all_is_accepted() {
        assert_eq!(
            CheckpointBlocks::parse("all").ok(),
            Some(CheckpointBlocks::All)
        );
        assert_eq!(
            CheckpointBlocks::parse("3").ok(),
            Some(CheckpointBlocks::Count(3))
        );
        for text in ["", "-1", "1.5", "10001", "most", "All"] {
            let message = CheckpointBlocks::parse(text).map_err(|e| e.to_string());
            let expected = format!(
                "`{text}` is not a number of blocks; write a number such as 0 or 4, or all"
            );
            assert_eq!(message, Err(expected));
        }
    }

    #[test]
    fn a_count_beyond_the_network_is_not_resolved() {
        assert_eq!(CheckpointBlocks::All.resolve(6), Some(6));
        assert_eq!(CheckpointBlocks::Count(0).resolve(6), Some(0));
        assert_eq!(CheckpointBlocks::Count(6).resolve(6), Some(6));
        assert_eq!(CheckpointBlocks::Count(7).resolve(6), None);
    }
}
