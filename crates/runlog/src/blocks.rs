//! How many of a network's blocks are checkpointed, as the user writes it: a number, or `all`. Knows no network.

use crate::RunlogError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most that may be written: no network here has more blocks.
pub(crate) const MOST: u64 = 10_000;

/// A number of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Blocks {
    /// So many, from the first on.
    Count(u32),
    /// As many as the network has.
    All,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Count(u32),
    Word(String),
}

impl Blocks {
    /// Reads `all` or a number from 0 on.
    pub fn parse(text: &str) -> Result<Blocks, RunlogError> {
        match (text, text.parse()) {
            ("all", _) => Ok(Blocks::All),
            (_, Ok(count)) if u64::from(count) <= MOST => Ok(Blocks::Count(count)),
            _ => Err(RunlogError::NotBlocks { text: text.into() }),
        }
    }

    /// How many that is in a network of `blocks`; `None` when it has fewer.
    pub fn of(self, blocks: u32) -> Option<u32> {
        match self {
            Blocks::All => Some(blocks),
            Blocks::Count(count) => Some(count).filter(|count| *count <= blocks),
        }
    }
}

impl TryFrom<Written> for Blocks {
    type Error = RunlogError;

    fn try_from(written: Written) -> Result<Blocks, RunlogError> {
        match written {
            Written::Count(count) => Ok(Blocks::Count(count)),
            Written::Word(word) => Blocks::parse(&word),
        }
    }
}

impl From<Blocks> for Written {
    fn from(blocks: Blocks) -> Written {
        match blocks {
            Blocks::Count(count) => Written::Count(count),
            Blocks::All => Written::Word("all".into()),
        }
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocks::Count(count) => write!(out, "{count}"),
            Blocks::All => write!(out, "all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_all_is_read_and_nothing_else() {
        assert_eq!(Blocks::parse("all").ok(), Some(Blocks::All));
        assert_eq!(Blocks::parse("3").ok(), Some(Blocks::Count(3)));
        for text in ["", "-1", "1.5", "10001", "most", "All"] {
            let message = Blocks::parse(text).map_err(|e| e.to_string());
            let expected = format!("`{text}` is no number of blocks. Write 0, 4 or all.");
            assert_eq!(message, Err(expected));
        }
    }

    #[test]
    fn a_network_has_all_of_its_blocks_and_no_more() {
        assert_eq!(Blocks::All.of(6), Some(6));
        assert_eq!(Blocks::Count(0).of(6), Some(0));
        assert_eq!(Blocks::Count(6).of(6), Some(6));
        assert_eq!(Blocks::Count(7).of(6), None);
    }
}
