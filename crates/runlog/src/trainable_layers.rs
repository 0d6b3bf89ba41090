//! The layers of a pretrained network that train, as the user writes them in `train_only`: `head`,
//! `last:N` or `all`. The crate `models` turns them into the `TrainedLayers` of one network.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The layers of a pretrained network that train, as the user writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TrainableLayers {
    /// The new head.
    Head,
    /// The last `n` blocks and the head; `n` is at least 1.
    Last(u32),
    /// All of it.
    All,
}

impl FromStr for TrainableLayers {
    type Err = String;

    fn from_str(text: &str) -> Result<TrainableLayers, String> {
        let last = text.strip_prefix("last:").map(str::parse::<u32>);
        match (text, last) {
            ("head", _) => Ok(TrainableLayers::Head),
            ("all", _) => Ok(TrainableLayers::All),
            (_, Some(Ok(last))) if last >= 1 => Ok(TrainableLayers::Last(last)),
            _ => Err("write head, all, or last:N, such as last:2".to_owned()),
        }
    }
}

impl TryFrom<String> for TrainableLayers {
    type Error = String;

    fn try_from(text: String) -> Result<TrainableLayers, String> {
        text.parse()
    }
}

impl From<TrainableLayers> for String {
    fn from(part: TrainableLayers) -> String {
        part.to_string()
    }
}

impl fmt::Display for TrainableLayers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainableLayers::Head => write!(out, "head"),
            TrainableLayers::Last(last) => write!(out, "last:{last}"),
            TrainableLayers::All => write!(out, "all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_written_as_it_is_read() {
        for text in ["head", "last:1", "last:12", "all"] {
            let part: TrainableLayers = text.parse().expect("it is a part");
            assert_eq!(part.to_string(), text);
            let json = serde_json::to_value(part).expect("it can be written");
            assert_eq!(json, text);
        }
        for text in ["", "tail", "last", "last:", "last:0", "last:-1", "Head"] {
            assert!(text.parse::<TrainableLayers>().is_err(), "{text}");
        }
    }
}
