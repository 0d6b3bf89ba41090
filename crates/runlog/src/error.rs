//! What can go wrong with configs, run folders and event files. Each message says what, where, and the next move.

use std::io;
use std::path::PathBuf;

/// Everything this crate refuses or fails at.
#[derive(Debug, thiserror::Error)]
pub enum RunlogError {
    /// The system refused to read or write.
    #[error("{path} could not be {what}: {source}. {}", next_move(source), path = path.display())]
    Disk {
        /// "read", "written", …
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A config is neither TOML nor JSON.
    #[error("{place}: {why}. Correct this line and start again.")]
    ConfigSyntax {
        /// "run.toml, line 3".
        place: String,
        /// What the parser says.
        why: String,
    },
    /// A config's name ends neither in .toml nor in .json.
    #[error("{path} is no config: its name must end in .toml or .json.", path = path.display())]
    ConfigFormat {
        /// The file.
        path: PathBuf,
    },
    /// A config has a key that does not exist.
    #[error("{place}: there is no key `{key}`. {hint}")]
    UnknownKey {
        /// "run.toml, line 3".
        place: String,
        /// The key as written.
        key: String,
        /// "Did you mean `epochs`?"
        hint: String,
    },
    /// A config's value has the wrong type or is out of range.
    #[error("{place}: `{key}` is {found}, but must be {allowed}. Change it and start again.")]
    ConfigValue {
        /// "run.toml, line 3".
        place: String,
        /// The key.
        key: String,
        /// The value as written.
        found: String,
        /// What is allowed.
        allowed: String,
    },
    /// Not a rhythm.
    #[error("`{text}` does not say how often. Write 10min, 2epochs or 500steps.")]
    NotARhythm {
        /// As written.
        text: String,
    },
    /// Not a number of blocks.
    #[error("`{text}` is no number of blocks. Write 0, 4 or all.")]
    NotBlocks {
        /// As written.
        text: String,
    },
    /// Not a size in bytes.
    #[error("`{text}` is not a size of memory. Write 8GB, 512MB or a number of bytes.")]
    NotASize {
        /// As written.
        text: String,
    },
    /// The folder holds no run.
    #[error("{path} is not a run folder: it holds neither events.jsonl nor config.toml. Choose a folder that `ebb runs` lists.", path = path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// No run has this name.
    #[error("There is no run `{text}` in {root}. {hint}", root = root.display())]
    UnknownRun {
        /// As written.
        text: String,
        /// The store.
        root: PathBuf,
        /// "Did you mean …?" or where to look.
        hint: String,
    },
    /// Several runs begin like this.
    #[error("`{text}` fits {} runs: {}. Write more of the name.", matches.len(), first_five(matches))]
    AmbiguousRun {
        /// As written.
        text: String,
        /// Ids of the runs, newest first.
        matches: Vec<String>,
    },
    /// Another process trains this run.
    #[error("{path} is being trained by {}. Stop it there first.", named(*process), path = path.display())]
    Busy {
        /// The run folder.
        path: PathBuf,
        /// The other process, where it is known.
        process: Option<u32>,
    },
    /// A line that is not the last cannot be read.
    #[error("{path}, line {line} is damaged: {why}. Remove this line to open the run.", path = path.display())]
    DamagedEvent {
        /// The event file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What the parser says.
        why: String,
    },
    /// The report could not be drawn.
    #[error("The report of {name} could not be drawn: {why}. The run itself is complete.")]
    Report {
        /// The run's name.
        name: String,
        /// What the drawing says.
        why: String,
    },
}

impl RunlogError {
    /// Wraps the system's refusal: `map_err(RunlogError::disk("read", path))`.
    pub(crate) fn disk(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> RunlogError {
        let path = path.into();
        move |source| RunlogError::Disk { what, path, source }
    }
}

fn next_move(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "Check the path.",
        io::ErrorKind::PermissionDenied => "Allow Ebb to use it, or choose another place.",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Free some space on this disk, then try again."
        }
        io::ErrorKind::ReadOnlyFilesystem => "Choose a place that can be written to.",
        _ => "Check the disk, then try again.",
    }
}

fn first_five(matches: &[String]) -> String {
    let mut names = matches
        .iter()
        .take(5)
        .map(String::as_str)
        .collect::<Vec<_>>();
    if matches.len() > names.len() {
        names.push("…");
    }
    names.join(", ")
}

fn named(process: Option<u32>) -> String {
    process.map_or_else(
        || "another process".to_owned(),
        |id| format!("process {id}"),
    )
}
