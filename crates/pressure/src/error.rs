//! Errors of reading memory: an unreadable machine, a bad script or a bad line. Deciding cannot
//! fail.

use format::format_io_error;
use std::path::PathBuf;

/// Why memory could not be read, or a request was refused.
#[derive(Debug, thiserror::Error)]
pub enum PressureError {
    /// The system refused a reading.
    #[error(
        "{what} could not be read: {}. Allow Ebb to read {what}.",
        format_io_error(source)
    )]
    Unreadable {
        /// A file, or the name of a system call.
        what: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A reading has an unknown format.
    #[error("Ebb expects an amount of memory in {what}, but found {found}.")]
    Unexpected {
        /// A file, or the name of a system call.
        what: String,
        /// The content that was found.
        found: String,
    },
    /// The memory script is missing or cannot be opened.
    #[error("The memory script {} could not be read: {}. Choose an existing, readable file.", path.display(), format_io_error(source))]
    ScriptUnreadable {
        /// The script.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A line of the memory script is invalid.
    #[error("{}, line {line}: {problem}. Each line looks like {{\"at_ms\":0,\"total_bytes\":8589934592,\"others_bytes\":3221225472}}; \"level\" is optional.", path.display())]
    ScriptLine {
        /// The script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A stress test would endanger the machine.
    #[error("{reason}.")]
    StressTestRefused {
        /// Why, and what would be possible.
        reason: String,
    },
    /// A line of JSON for the controller is invalid.
    #[error("Line {line}: {problem}. docs/guide/controller.md has an example.")]
    JsonLine {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The memory script has no line.
    #[error("The memory script {} is empty. Write at least one line like {{\"at_ms\":0,\"total_bytes\":8589934592,\"others_bytes\":3221225472}}.", path.display())]
    ScriptEmpty {
        /// The script.
        path: PathBuf,
    },
}
