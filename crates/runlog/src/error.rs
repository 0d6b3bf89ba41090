//! Errors of configs, run folders and event files. Each message says what happened, where, and what
//! the user can do.

use format::format_io_error;
use std::io;
use std::path::PathBuf;

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum RunlogError {
    /// A file or folder could not be read or written.
    #[error("{path} could not be {operation}: {}; {}", format_io_error(source), advice(source), path = path.display())]
    Disk {
        /// The failed operation as a participle: "read", "written", …
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A config is not valid TOML or JSON.
    #[error("{place}: {reason}; correct it and start again")]
    ConfigSyntax {
        /// "run.toml, line 3".
        place: String,
        /// The parser's message.
        reason: String,
    },
    /// A config's file name ends neither in `.toml` nor in `.json`.
    #[error("{path} is not a config: its name must end in .toml or .json", path = path.display())]
    ConfigFormat {
        /// The file.
        path: PathBuf,
    },
    /// A config has an unknown key.
    #[error("{place}: there is no key `{key}`; {hint}")]
    UnknownKey {
        /// "run.toml, line 3".
        place: String,
        /// The key as written.
        key: String,
        /// "did you mean `epochs`?"
        hint: String,
    },
    /// A config's value has the wrong type or is out of range.
    #[error("{place}: `{key}` is {found}, but must be {allowed}; change it and start again")]
    ConfigValue {
        /// "run.toml, line 3".
        place: String,
        /// The key.
        key: String,
        /// The value as written.
        found: String,
        /// The allowed values.
        allowed: String,
    },
    /// The text is not an interval.
    #[error("`{text}` is not an interval; write one such as 10min, 2epochs or 500steps, or auto")]
    InvalidInterval {
        /// The text as written.
        text: String,
    },
    /// A tag cannot be used, added or removed.
    #[error("the tag `{tag}` does not work: {reason}")]
    InvalidTag {
        /// The tag as written, without control characters.
        tag: String,
        /// Why, and what to write instead.
        reason: String,
    },
    /// The text is not a number of blocks.
    #[error("`{text}` is not a number of blocks; write a number such as 0 or 4, or all")]
    InvalidBlocks {
        /// The text as written.
        text: String,
    },
    /// The text is not a size in bytes.
    #[error(
        "`{text}` is not a memory size. Write a size such as 8GB or 512MB, or a number of bytes."
    )]
    NotASize {
        /// The text as written.
        text: String,
    },
    /// The folder does not contain a run.
    #[error("{path} is not a run folder: it contains neither events.jsonl nor config.toml; choose a folder that `ebb runs` lists", path = path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// No run matches the text.
    #[error("there is no run `{text}` in {root}; {hint}", root = root.display())]
    UnknownRun {
        /// The text as written.
        text: String,
        /// The folder of all runs.
        root: PathBuf,
        /// "did you mean …?", or how to list the runs.
        hint: String,
    },
    /// Several runs match the text.
    #[error("`{text}` matches {} runs: {}; write a longer part of the run's name", matches.len(), first_five(matches))]
    AmbiguousRun {
        /// The text as written.
        text: String,
        /// Ids of the runs, newest first.
        matches: Vec<String>,
    },
    /// Another process trains this run.
    #[error("{path} is being trained by {}; stop that training first", process_name(*process), path = path.display())]
    Busy {
        /// The run folder.
        path: PathBuf,
        /// Id of the other process, if it is known.
        process: Option<u32>,
    },
    /// The notes of a run are too long to be saved.
    #[error("the notes of {run} were not saved: {problem}")]
    NotesNotSaved {
        /// Id of the run.
        run: String,
        /// Why, and what to do.
        problem: String,
    },
    /// A run was not exported as an archive.
    #[error("{run} was not exported: {problem}")]
    NotExported {
        /// Id of the run.
        run: String,
        /// Why, and what to do.
        problem: String,
    },
    /// An archive of a run was not imported; nothing of it is left.
    #[error("{archive} was not imported: {problem}", archive = archive.display())]
    NotImported {
        /// The archive.
        archive: PathBuf,
        /// Why, and what to do.
        problem: String,
    },
    /// The report could not be drawn.
    #[error("the report of {name} could not be created: {reason}; the run itself is complete")]
    Report {
        /// Name of the run.
        name: String,
        /// The drawing library's message.
        reason: String,
    },
}

impl RunlogError {
    /// Wraps an I/O error: `map_err(RunlogError::disk("read", path))`.
    pub(crate) fn disk(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> RunlogError {
        let path = path.into();
        move |source| RunlogError::Disk {
            operation,
            path,
            source,
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "allow Ebb to use this path, or choose another folder",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space on this disk, then try again"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose a writable folder",
        _ => "check the disk, then try again",
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

fn process_name(process: Option<u32>) -> String {
    process.map_or_else(
        || "another process".to_owned(),
        |id| format!("process {id}"),
    )
}
