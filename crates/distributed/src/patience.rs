//! How long a machine may be silent before it counts as failed.

use crate::error::{GroupError, Result};
use std::time::Duration;

/// The environment variable with the number of seconds.
pub const PATIENCE_VARIABLE: &str = "EBB_GROUP_PATIENCE";
/// Seconds if the variable is not set.
const USUAL: u64 = 60;
/// Most seconds.
const MOST: u64 = 3600;

/// The time without an answer after which a machine counts as failed: a minute, or the seconds in
/// [`PATIENCE_VARIABLE`].
///
/// # Errors
/// The variable is not a number of seconds from 1 to 3600.
pub fn patience() -> Result<Duration> {
    from_text(std::env::var(PATIENCE_VARIABLE).ok().as_deref())
}

fn from_text(text: Option<&str>) -> Result<Duration> {
    let seconds = match text {
        None | Some("") => Some(USUAL),
        Some(text) => text.parse().ok(),
    };
    let seconds = seconds.filter(|seconds| (1..=MOST).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        GroupError::Unavailable(format!(
            "{PATIENCE_VARIABLE} must be a number of seconds from 1 to {MOST}, not {}",
            text.unwrap_or_default()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_minute_unless_the_variable_is_set() {
        for (text, seconds) in [(None, 60), (Some(""), 60), (Some("5"), 5)] {
            assert_eq!(
                from_text(text),
                Ok(Duration::from_secs(seconds)),
                "{text:?}"
            );
        }
        for wrong in ["0", "3601", "-1", "5 s", "soon"] {
            let refused = from_text(Some(wrong)).expect_err(wrong).to_string();
            assert!(refused.contains(PATIENCE_VARIABLE) && refused.ends_with(wrong));
        }
    }
}
