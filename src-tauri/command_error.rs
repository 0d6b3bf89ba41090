//! Errors as the window receives them: a code that it may act on, and the sentence that it shows.

use crate::window_types::CommandError;
use runlog::RunlogError;
use trainer::TrainError;

/// The code of errors after which only a new device works.
const DEVICE_LOST: &str = "device_lost";

impl CommandError {
    /// An error of the window's own commands.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        CommandError {
            code: code.into(),
            message: message.into(),
        }
    }

    /// The error for an id that this process does not know, for example from before a restart.
    pub fn unknown(what: &str) -> Self {
        Self::new(
            "unknown_id",
            format!("This {what} is no longer open. Choose it again."),
        )
    }

    /// True if the device of the failed work is lost, or its memory may be damaged: whatever is on
    /// it has to be loaded anew.
    pub fn needs_reload(&self) -> bool {
        self.code == DEVICE_LOST
    }

    /// The error for work whose thread cannot be started.
    pub fn no_thread(error: &std::io::Error) -> Self {
        let why =
            format!("A thread could not be started: {error}. Close other apps, then try again.");
        Self::new("failed", why)
    }
}

impl From<RunlogError> for CommandError {
    fn from(error: RunlogError) -> Self {
        let code = match error {
            RunlogError::Busy { .. } => "busy",
            _ => "failed",
        };
        CommandError::new(code, sentence(&error.to_string()))
    }
}

impl From<TrainError> for CommandError {
    fn from(error: TrainError) -> Self {
        let code = match &error {
            TrainError::NotTrainable { .. } => "not_trainable",
            TrainError::Setting { .. } => "invalid_setting",
            TrainError::Run(RunlogError::Busy { .. }) => "busy",
            TrainError::CheckStopped | TrainError::StoppedBeforeStart => "stopped",
            error if error.needs_reload() => DEVICE_LOST,
            _ => "failed",
        };
        CommandError::new(code, sentence(&error.to_string()))
    }
}

/// Starts the text with a capital, unless its first word is a name such as `image_size` or a path.
pub fn sentence(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    if first.is_empty() || !first.chars().all(|c| c.is_ascii_lowercase()) {
        return text.to_owned();
    }
    text[..1].to_ascii_uppercase() + &text[1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_start_with_a_capital_but_names_do_not_change() {
        let check = |text: &str, shown: &str| assert_eq!(sentence(text), shown);
        check("the training diverged", "The training diverged");
        check(
            "image_size = 3 does not work",
            "image_size = 3 does not work",
        );
        check("/data/a: denied", "/data/a: denied");
        check("Übung", "Übung");
        check("", "");
    }
}
