//! Writes a folder that appears complete or not at all: it is filled under a temporary name, synced
//! and renamed at the end. A folder that is not empty is left alone.

use crate::error::{ModelError, Result, at};
use format::format_io_error;
use std::fs;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

/// The file of a model card, as on the Hugging Face hub.
const CARD: &str = "README.md";

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
    if folder.file_name().is_none() {
        let reason = "the path does not end in a folder name; choose a path that does, such as exports/model";
        return Err(ModelError::hub_folder(folder, reason));
    }
    let draft = disk::draft_path(folder);
    // An export that was killed leaves its draft.
    disk::remove_drafts_of(folder);
    let parent = draft.parent().unwrap_or(Path::new(""));
    let written = disk::create_dir_all(parent)
        .and_then(|()| disk::create_dir(&draft))
        .map_err(at(&draft))
        .and_then(|()| fill(&draft))
        .and_then(|()| put_in_place(&draft, folder).map_err(at(folder)));
    written.map_err(|error| {
        // It may not exist.
        let _ = disk::remove_dir_all(&draft);
        match error {
            ModelError::File { source, .. } => not_written(folder, &source),
            error => error,
        }
    })
}

/// Writes a folder with these files, by name.
///
/// # Errors
/// The folder is not empty or cannot be written.
pub fn export_files(
    folder: &Path,
    files: &[(&str, &[u8])],
    opened_by: &'static str,
) -> Result<Exported> {
    write_folder(folder, |draft| {
        let mut files = files.iter();
        files.try_for_each(|(name, bytes)| write(draft, name, bytes))
    })?;
    Exported::list(folder, opened_by)
}

/// Writes a folder with what `export` writes, with these files, by name, and with a model card that
/// `card` makes from what opens the folder: `opened_by`, if given, or else what `export` returns.
///
/// # Errors
/// The folder is not empty or cannot be written; the errors of `export`.
pub fn export_with_files(
    folder: &Path,
    files: &[(&str, &[u8])],
    opened_by: Option<&'static str>,
    card: impl FnOnce(&str) -> String,
    export: impl FnOnce(&Path) -> Result<Exported>,
) -> Result<Exported> {
    let mut opens = opened_by.unwrap_or_default();
    write_folder(folder, |draft| {
        let exported = export(draft)?;
        opens = opened_by.unwrap_or(exported.opened_by);
        let mut files = files.iter();
        files.try_for_each(|(name, bytes)| write(draft, name, bytes))?;
        write(draft, CARD, card(opens))
    })?;
    Exported::list(folder, opens)
}

/// Why a folder could not be written, and what to do.
fn not_written(folder: &Path, error: &std::io::Error) -> ModelError {
    let reason = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the disk is full; free some space or choose another place".to_owned()
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            "Ebb has no permission to write to this place; choose another place".to_owned()
        }
        _ => {
            let problem = format_io_error(error);
            format!("the export could not be written: {problem}; choose another place")
        }
    };
    ModelError::hub_folder(folder, reason)
}

/// Syncs a complete folder and renames it to its place, which may be an empty folder.
fn put_in_place(draft: &Path, folder: &Path) -> std::io::Result<()> {
    disk::sync_all_in(draft)?;
    if folder.is_dir() {
        disk::remove_dir(folder)?;
    }
    disk::rename(draft, folder)?;
    disk::sync_parent(folder)
}

/// Writes one file of a folder.
pub fn write(folder: &Path, name: &str, contents: impl AsRef<[u8]>) -> Result<()> {
    let path = folder.join(name);
    disk::write(&path, contents.as_ref()).map_err(at(&path))
}

/// Creates a large file of a folder.
pub fn create_file(path: &Path) -> Result<BufWriter<disk::File>> {
    let file = disk::File::open(path, 0).map_err(at(path))?;
    Ok(BufWriter::new(file))
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
            (ErrorKind::ReadOnlyFilesystem, "Ebb has no permission"),
            (ErrorKind::PermissionDenied, "Ebb has no permission"),
            (ErrorKind::NotFound, "the export could not be written: "),
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

    #[test]
    fn an_export_that_was_killed_leaves_nothing_for_the_next_one() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let killed = [
            ".draft-birds.4711".into(),
            disk::draft_path(Path::new("birds")),
        ];
        for draft in killed {
            let draft = place.path().join(draft);
            fs::create_dir(&draft).expect("it can be made");
            fs::write(draft.join("half"), "half").expect("it can be written");
        }
        let folder = place.path().join("birds");
        write_folder(&folder, |draft| write(draft, "config.json", "{}")).expect("it is written");
        let names = |folder: &Path| {
            let paths = disk::list(folder).expect("it can be listed");
            let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(names(place.path()), ["birds"]);
        assert_eq!(names(&folder), ["config.json"]);
    }
}
