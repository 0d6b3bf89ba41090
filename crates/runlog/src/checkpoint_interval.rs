//! An interval between two checkpoints, as the user writes it: `10min`, `2epochs`, `500steps`.

use crate::RunlogError;
use std::fmt;
use std::str::FromStr;

/// An interval in minutes, epochs or steps; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Minutes of training.
    Minutes(u64),
    /// Epochs.
    Epochs(u64),
    /// Optimizer steps.
    Steps(u64),
}

impl Interval {
    /// Parses `10min`, `2epochs` or `500steps`. The singular `1epoch` is accepted too.
    ///
    /// # Errors
    /// If the text is none of these, or its number is not in `1..=1_000_000_000`.
    pub fn parse(text: &str) -> Result<Interval, RunlogError> {
        let invalid = || RunlogError::InvalidInterval { text: text.into() };
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let count: u64 = text[..end].parse().map_err(|_| invalid())?;
        if !(1..=1_000_000_000).contains(&count) {
            return Err(invalid());
        }
        match text[end..].trim() {
            "min" | "mins" | "minute" | "minutes" => Ok(Interval::Minutes(count)),
            "epoch" | "epochs" => Ok(Interval::Epochs(count)),
            "step" | "steps" => Ok(Interval::Steps(count)),
            _ => Err(invalid()),
        }
    }
}

impl FromStr for Interval {
    type Err = RunlogError;

    fn from_str(text: &str) -> Result<Interval, RunlogError> {
        Interval::parse(text)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interval::Minutes(count) => write!(out, "{count}min"),
            Interval::Epochs(count) => write!(out, "{count}epochs"),
            Interval::Steps(count) => write!(out, "{count}steps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_round_trips() {
        for text in ["10min", "2epochs", "500steps"] {
            assert_eq!(
                Interval::parse(text).map(|e| e.to_string()).ok().as_deref(),
                Some(text)
            );
        }
        assert_eq!(Interval::parse(" 1 epoch ").ok(), Some(Interval::Epochs(1)));
    }

    #[test]
    fn an_invalid_interval_is_refused_with_three_examples() {
        for text in [
            "",
            "min",
            "0min",
            "-5steps",
            "10",
            "10 days",
            "2.5epochs",
            "99999999999999999999steps",
        ] {
            let message = Interval::parse(text).map_err(|e| e.to_string());
            let expected = format!("`{text}` is not an interval; write 10min, 2epochs or 500steps");
            assert_eq!(message, Err(expected));
        }
    }
}
