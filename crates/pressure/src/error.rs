//! What can go wrong while memory is read: an unreadable machine or a bad script. Deciding cannot fail.

use std::path::PathBuf;

/// A reading that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PressureError {
    /// The system refused or changed one of its readings.
    #[error("{what} could not be read: {source}. Let Ebb read it, or go on without it.")]
    Unreadable {
        /// A file, or the name of a system call.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A reading came back in a form that nobody knows.
    #[error("{what} holds {found}, which is not a memory reading.")]
    Unexpected {
        /// A file, or the name of a system call.
        what: String,
        /// What was found there.
        found: String,
    },
    /// The memory script is missing or cannot be opened.
    #[error("The memory script {} could not be read: {source}. Give a file that exists and may be read.", path.display())]
    ScriptUnreadable {
        /// The script.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line of the memory script is wrong.
    #[error("{}, line {line}: {wrong}. Each line is like {{\"at_ms\":0,\"total_bytes\":8589934592,\"others_bytes\":3221225472}}, with \"level\" if wanted.", path.display())]
    ScriptLine {
        /// The script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        wrong: String,
    },
    /// A drill that would endanger the machine.
    #[error("{why}.")]
    NoDrill {
        /// Why, and what would do.
        why: String,
    },
    /// A line that the pilot was told is wrong.
    #[error("Line {line}: {wrong}. docs/pilot.md has an example.")]
    TraceLine {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        wrong: String,
    },
    /// The memory script has no line at all.
    #[error("The memory script {} is empty. Write at least one line like {{\"at_ms\":0,\"total_bytes\":8589934592,\"others_bytes\":3221225472}}.", path.display())]
    ScriptEmpty {
        /// The script.
        path: PathBuf,
    },
}
