//! An interval between two checkpoints, as the user writes it: `10min`, `2epochs`, `500steps`, or
//! `auto`.

use crate::RunlogError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An interval in minutes, epochs or steps, never 0, or one that follows from measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CheckpointInterval {
    /// As often as saving costs at most 3 % of the training time; at least 5 minutes.
    Automatic,
    /// Minutes of training.
    Minutes(u64),
    /// Epochs.
    Epochs(u64),
    /// Optimizer steps.
    Steps(u64),
}

impl CheckpointInterval {
    /// Parses `auto`, `10min`, `2epochs` or `500steps`. The singular `1epoch` is accepted too.
    ///
    /// # Errors
    /// If the text is none of these, or its number is not in `1..=1_000_000_000`.
    pub fn parse(text: &str) -> Result<CheckpointInterval, RunlogError> {
        let invalid = || RunlogError::InvalidInterval { text: text.into() };
        let text = text.trim();
        if text == "auto" {
            return Ok(CheckpointInterval::Automatic);
        }
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let count: u64 = text[..end].parse().map_err(|_| invalid())?;
        if !(1..=1_000_000_000).contains(&count) {
            return Err(invalid());
        }
        match text[end..].trim() {
            "min" | "mins" | "minute" | "minutes" => Ok(CheckpointInterval::Minutes(count)),
            "epoch" | "epochs" => Ok(CheckpointInterval::Epochs(count)),
            "step" | "steps" => Ok(CheckpointInterval::Steps(count)),
            _ => Err(invalid()),
        }
    }
}

impl FromStr for CheckpointInterval {
    type Err = RunlogError;

    fn from_str(text: &str) -> Result<CheckpointInterval, RunlogError> {
        CheckpointInterval::parse(text)
    }
}

impl TryFrom<String> for CheckpointInterval {
    type Error = RunlogError;

    fn try_from(text: String) -> Result<CheckpointInterval, RunlogError> {
        CheckpointInterval::parse(&text)
    }
}

impl From<CheckpointInterval> for String {
    fn from(interval: CheckpointInterval) -> String {
        interval.to_string()
    }
}

impl fmt::Display for CheckpointInterval {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointInterval::Automatic => out.write_str("auto"),
            CheckpointInterval::Minutes(count) => write!(out, "{count}min"),
            CheckpointInterval::Epochs(count) => write!(out, "{count}epochs"),
            CheckpointInterval::Steps(count) => write!(out, "{count}steps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_round_trips() {
        for text in ["auto", "10min", "2epochs", "500steps"] {
            assert_eq!(
                CheckpointInterval::parse(text)
                    .map(|e| e.to_string())
                    .ok()
                    .as_deref(),
                Some(text)
            );
            let json: Option<CheckpointInterval> = serde_json::from_value(text.into()).ok();
            assert_eq!(serde_json::to_value(json).ok(), Some(text.into()));
        }
        assert_eq!(
            CheckpointInterval::parse(" 1 epoch ").ok(),
            Some(CheckpointInterval::Epochs(1))
        );
    }

    #[test]
    fn an_invalid_interval_is_refused_with_examples() {
        for text in [
            "",
            "min",
            "0min",
            "-5steps",
            "10",
            "10 days",
            "automatic",
            "2.5epochs",
            "99999999999999999999steps",
        ] {
            let message = CheckpointInterval::parse(text).map_err(|e| e.to_string());
            let expected = format!(
                "`{text}` is not an interval; write one such as 10min, 2epochs or 500steps, or auto"
            );
            assert_eq!(message, Err(expected));
        }
    }
}
