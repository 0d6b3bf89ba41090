//! A folder that appears whole or not at all: it is filled beside its place and takes its name at the end.
//!
//! Refuses to know what is written. A folder that has something in it is left alone.

use super::settings::refusal;
use crate::error::{Result, at};
use std::fs;
use std::path::{Path, PathBuf};

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The folder.
    pub folder: PathBuf,
    /// Names of its files, in alphabetical order.
    pub files: Vec<String>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// How Python opens it.
    pub opened_by: &'static str,
}

impl Exported {
    /// What lies in a folder.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn of(folder: &Path, opened_by: &'static str) -> Result<Self> {
        let (mut files, mut bytes) = (Vec::new(), 0);
        for entry in fs::read_dir(folder).map_err(at(folder))? {
            let entry = entry.map_err(at(folder))?;
            files.push(entry.file_name().to_string_lossy().into_owned());
            bytes += entry.metadata().map_err(at(folder))?.len();
        }
        files.sort();
        Ok(Exported {
            folder: folder.to_owned(),
            files,
            bytes,
            opened_by,
        })
    }
}

/// Writes a folder by `fill`, which gets an empty one.
///
/// # Errors
/// The folder has something in it, or cannot be written; what `fill` says.
pub(super) fn whole(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let filled = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if filled || folder.is_file() {
        let reason = "there is something already; choose a folder that is new or empty";
        return Err(refusal(folder, reason.to_owned()));
    }
    let name = folder
        .file_name()
        .ok_or_else(|| refusal(folder, "it has no name; choose another folder".to_owned()))?;
    let parent = folder.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let draft = format!(".{}.{}", name.to_string_lossy(), std::process::id());
    let draft = parent.join(draft);
    let written = prepare(&draft).and_then(|()| fill(&draft)).and_then(|()| {
        if folder.is_dir() {
            fs::remove_dir(folder).map_err(at(folder))?;
        }
        fs::rename(&draft, folder).map_err(at(folder))
    });
    if written.is_err() {
        let _ = fs::remove_dir_all(&draft);
    }
    written
}

/// An empty folder to write in.
fn prepare(draft: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(draft);
    fs::create_dir_all(draft).map_err(at(draft))
}

/// Writes one file of a folder.
pub(super) fn write(folder: &Path, name: &str, contents: impl AsRef<[u8]>) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, contents).map_err(at(&path))
}
