//! Writes a folder that appears complete or not at all: it is filled under a temporary name and
//! renamed at the end. A folder that is not empty is left alone.

use crate::error::{ModelError, Result, at};
use std::fs;
use std::path::{Path, PathBuf};

/// An exported folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The folder.
    pub folder: PathBuf,
    /// Names of its files, sorted.
    pub files: Vec<String>,
    /// Size of all files in bytes.
    pub bytes: u64,
    /// Python expression that opens it.
    pub opened_by: &'static str,
}

impl Exported {
    /// Lists the files of a folder.
    pub(super) fn list(folder: &Path, opened_by: &'static str) -> Result<Self> {
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

/// Creates a folder with the files that `fill` writes into an empty one.
///
/// # Errors
/// The folder is not empty or cannot be written; the errors of `fill`.
pub fn write_folder(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let has_entries = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if has_entries || folder.is_file() {
        let reason = "the folder is not empty; choose a new or empty folder";
        return Err(ModelError::hub_folder(folder, reason));
    }
    let name = folder
        .file_name()
        .ok_or_else(|| ModelError::hub_folder(folder, "the path does not end in a folder name; choose a path that does, such as exports/model"))?;
    let parent = folder.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let draft = format!(".{}.{}", name.to_string_lossy(), std::process::id());
    let draft = parent.join(draft);
    let written = create_empty(&draft)
        .and_then(|()| fill(&draft))
        .and_then(|()| {
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

/// Creates an empty folder.
fn create_empty(draft: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(draft);
    fs::create_dir_all(draft).map_err(at(draft))
}

/// Writes one file of a folder.
pub fn write(folder: &Path, name: &str, contents: impl AsRef<[u8]>) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, contents).map_err(at(&path))
}
