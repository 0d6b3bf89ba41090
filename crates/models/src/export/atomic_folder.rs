//! Writes a folder that appears complete or not at all: it is filled under a temporary name and
//! renamed at the end. A folder that is not empty is left alone.

use crate::error::{ModelError, Result, at};
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

/// An exported folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The folder.
    pub folder: PathBuf,
    /// Paths of its files below it, sorted.
    pub files: Vec<String>,
    /// Size of all files in bytes.
    pub bytes: u64,
    /// The program or Python expression that opens it.
    pub opened_by: &'static str,
}

impl Exported {
    /// Lists the files of a folder.
    pub(super) fn list(folder: &Path, opened_by: &'static str) -> Result<Self> {
        let (mut files, mut bytes) = (Vec::new(), 0);
        let mut folders = vec![(folder.to_owned(), String::new())];
        while let Some((path, prefix)) = folders.pop() {
            for entry in fs::read_dir(&path).map_err(at(&path))? {
                let entry = entry.map_err(at(&path))?;
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                let metadata = entry.metadata().map_err(at(&path))?;
                if metadata.is_dir() {
                    folders.push((entry.path(), format!("{name}/")));
                } else {
                    files.push(name);
                    bytes += metadata.len();
                }
            }
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
    written.map_err(|error| {
        // It may not exist.
        let _ = fs::remove_dir_all(&draft);
        match error {
            ModelError::File { source, .. } => not_written(folder, &source),
            error => error,
        }
    })
}

/// Why a folder could not be written, and what to do.
fn not_written(folder: &Path, error: &std::io::Error) -> ModelError {
    let reason = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the disk is full; free some space or choose another place".to_owned()
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            "Ebb may not write there; choose another place".to_owned()
        }
        _ => format!("it could not be written: {error}; choose another place"),
    };
    ModelError::hub_folder(folder, reason)
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

/// Creates a large file of a folder.
pub fn create_file(path: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(path).map_err(at(path))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_place_that_cannot_be_written_is_named_and_nothing_stays() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = place.path().join("birds");
        let cases = [
            (ErrorKind::StorageFull, "the disk is full; free some space"),
            (ErrorKind::ReadOnlyFilesystem, "Ebb may not write there"),
            (ErrorKind::PermissionDenied, "Ebb may not write there"),
            (ErrorKind::NotFound, "it could not be written: "),
        ];
        for (kind, reason) in cases {
            let refused = write_folder(&folder, |draft| {
                write(draft, "config.json", "{}")?;
                Err(at(&draft.join("model.onnx"))(io::Error::from(kind)))
            });
            let message = refused.expect_err("the disk refuses it").to_string();
            let start = format!("{}: {reason}", folder.display());
            assert!(message.starts_with(&start), "{message}");
            assert!(message.ends_with("choose another place"), "{message}");
            let left = fs::read_dir(place.path()).expect("it can be read").count();
            assert_eq!(left, 0, "{kind}");
        }
    }
}
