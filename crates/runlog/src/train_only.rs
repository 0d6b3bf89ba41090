//! The part of a pretrained network that trains, as the user writes it: `head`, `last:N` or `all`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The part of a pretrained network that trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TrainOnly {
    /// The new head.
    Head,
    /// The last `n` blocks and the head; `n` is at least 1.
    Last(u32),
    /// All of it.
    All,
}

impl FromStr for TrainOnly {
    type Err = String;

    fn from_str(text: &str) -> Result<TrainOnly, String> {
        let last = text.strip_prefix("last:").map(str::parse::<u32>);
        match (text, last) {
            ("head", _) => Ok(TrainOnly::Head),
            ("all", _) => Ok(TrainOnly::All),
            (_, Some(Ok(last))) if last >= 1 => Ok(TrainOnly::Last(last)),
            _ => Err("write head, all, or last:N, such as last:2".to_owned()),
        }
    }
}

impl TryFrom<String> for TrainOnly {
    type Error = String;

    fn try_from(text: String) -> Result<TrainOnly, String> {
        text.parse()
    }
}

impl From<TrainOnly> for String {
    fn from(part: TrainOnly) -> String {
        part.to_string()
    }
}

impl fmt::Display for TrainOnly {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainOnly::Head => write!(out, "head"),
            TrainOnly::Last(last) => write!(out, "last:{last}"),
            TrainOnly::All => write!(out, "all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_written_as_it_is_read() {
        for text in ["head", "last:1", "last:12", "all"] {
            let part: TrainOnly = text.parse().expect("it is a part");
            assert_eq!(part.to_string(), text);
            let json = serde_json::to_value(part).expect("it can be written");
            assert_eq!(json, text);
        }
        for text in ["", "tail", "last", "last:", "last:0", "last:-1", "Head"] {
            assert!(text.parse::<TrainOnly>().is_err(), "{text}");
        }
    }
}
