//! How often something is done, as the user writes it: `10min`, `2epochs`, `500steps`. Knows no clock.

use crate::RunlogError;
use std::fmt;
use std::str::FromStr;

/// A rhythm of minutes, epochs or steps; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// Minutes of training.
    Minutes(u64),
    /// Epochs.
    Epochs(u64),
    /// Optimizer steps.
    Steps(u64),
}

impl Every {
    /// Reads `10min`, `2epochs` or `500steps`; a single one may be written `1epoch`.
    pub fn parse(text: &str) -> Result<Every, RunlogError> {
        let wrong = || RunlogError::NotARhythm { text: text.into() };
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let count: u64 = text[..end].parse().map_err(|_| wrong())?;
        if !(1..=1_000_000_000).contains(&count) {
            return Err(wrong());
        }
        match text[end..].trim() {
            "min" | "mins" | "minute" | "minutes" => Ok(Every::Minutes(count)),
            "epoch" | "epochs" => Ok(Every::Epochs(count)),
            "step" | "steps" => Ok(Every::Steps(count)),
            _ => Err(wrong()),
        }
    }
}

impl FromStr for Every {
    type Err = RunlogError;

    fn from_str(text: &str) -> Result<Every, RunlogError> {
        Every::parse(text)
    }
}

impl fmt::Display for Every {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Every::Minutes(count) => write!(out, "{count}min"),
            Every::Epochs(count) => write!(out, "{count}epochs"),
            Every::Steps(count) => write!(out, "{count}steps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rhythm_is_read_back_as_it_was_written() {
        for text in ["10min", "2epochs", "500steps"] {
            assert_eq!(
                Every::parse(text).map(|e| e.to_string()).ok().as_deref(),
                Some(text)
            );
        }
        assert_eq!(Every::parse(" 1 epoch ").ok(), Some(Every::Epochs(1)));
    }

    #[test]
    fn what_is_no_rhythm_is_refused_with_three_examples() {
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
            let message = Every::parse(text).map_err(|e| e.to_string());
            let expected =
                format!("`{text}` does not say how often. Write 10min, 2epochs or 500steps.");
            assert_eq!(message, Err(expected));
        }
    }
}
