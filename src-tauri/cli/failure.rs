//! An error of a command: one sentence on stderr, and an exit code.

use super::output::status;
use std::process::ExitCode;

/// Why a command failed.
pub struct Failure {
    sentence: String,
    code: u8,
}

impl Failure {
    /// The command failed. The exit code is 1.
    pub fn new(sentence: impl Into<String>) -> Self {
        Failure {
            sentence: sentence.into(),
            code: 1,
        }
    }

    /// The arguments or the config are wrong. The exit code is 2.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Failure {
            sentence: sentence.into(),
            code: 2,
        }
    }

    /// Another process has printed why the command failed.
    pub fn reported(code: u8) -> Self {
        Failure {
            sentence: String::new(),
            code,
        }
    }

    /// The user stopped the command before it had a result. The exit code is 0, the same as for a
    /// training that the user stops.
    pub fn stopped(sentence: impl Into<String>) -> Self {
        Failure {
            sentence: sentence.into(),
            code: 0,
        }
    }

    /// What failed.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Prints the sentence now. [`Failure::print`] then only returns the exit code.
    pub fn printed(self) -> Self {
        status!("ebb: {}", self.sentence);
        Failure {
            sentence: String::new(),
            ..self
        }
    }

    /// Prints the sentence, unless it was printed before, and returns the exit code.
    pub fn print(self) -> ExitCode {
        if !self.sentence.is_empty() {
            status!("ebb: {}", self.sentence);
        }
        ExitCode::from(self.code)
    }
}

impl From<trainer::TrainError> for Failure {
    fn from(error: trainer::TrainError) -> Self {
        match error {
            trainer::TrainError::Setting { .. } => Failure::usage(error.to_string()),
            trainer::TrainError::StoppedBeforeStart => Failure::stopped(error.to_string()),
            trainer::TrainError::Run(error) => error.into(),
            error => Failure::new(error.to_string()),
        }
    }
}

impl From<runlog::RunlogError> for Failure {
    fn from(error: runlog::RunlogError) -> Self {
        use runlog::RunlogError as E;
        let sentence = error.to_string();
        match error {
            E::ConfigSyntax { .. }
            | E::ConfigFormat { .. }
            | E::UnknownKey { .. }
            | E::ConfigValue { .. }
            | E::InvalidInterval { .. }
            | E::InvalidTag { .. } => Failure::usage(sentence),
            _ => Failure::new(sentence),
        }
    }
}

impl From<dataset::DatasetError> for Failure {
    fn from(error: dataset::DatasetError) -> Self {
        Failure::new(error.to_string())
    }
}

impl From<pressure::PressureError> for Failure {
    fn from(error: pressure::PressureError) -> Self {
        Failure::new(error.to_string())
    }
}
