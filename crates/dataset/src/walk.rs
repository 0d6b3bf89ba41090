//! Lists what stands below a folder, in a fixed order, without opening a file. What systems leave behind is counted and
//! passed over; links are judged by where they lead. Knows nothing of images or classes.

use crate::error::DatasetError;
use crate::inspection::{Ignored, SkippedFile};
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use unicode_normalization::UnicodeNormalization;

/// What stands below a folder. All paths are relative to it.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Plain files, and links to plain files inside the folder.
    pub files: Vec<Entry>,
    /// Sub-folders at every depth.
    pub folders: Vec<Entry>,
    /// Links and folders that were left out.
    pub skipped: Vec<SkippedFile>,
    /// What systems leave behind.
    pub ignored: Ignored,
}

/// A file or folder.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// As the file system spells it.
    pub path: PathBuf,
    /// Its names from the folder down, composed (NFC).
    pub names: Vec<String>,
    /// Bytes on disk; 0 for a folder.
    pub bytes: u64,
}

/// Lists everything below `root`, which must be absolute and without links.
pub(crate) fn walk(root: &Path) -> Result<Walk, DatasetError> {
    let mut found = Walk::default();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        let listing =
            fs::read_dir(root.join(&folder)).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        match listing {
            Ok(entries) => {
                for entry in &entries {
                    open.extend(found.take(root, &folder, entry));
                }
            }
            Err(source) if folder.as_os_str().is_empty() => {
                return Err(DatasetError::of_folder(root, source));
            }
            Err(source) => found.skip(folder, unreadable("folder", &source)),
        }
    }
    found
        .files
        .sort_by(|a, b| (&a.names, &a.path).cmp(&(&b.names, &b.path)));
    found
        .folders
        .sort_by(|a, b| (&a.names, &a.path).cmp(&(&b.names, &b.path)));
    found.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl Walk {
    /// Files one entry; gives back its path when it is a folder to go into.
    fn take(&mut self, root: &Path, folder: &Path, entry: &DirEntry) -> Option<PathBuf> {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_litter(&name) {
            self.ignored.system += 1;
            return None;
        }
        let path = folder.join(entry.file_name());
        if path.to_str().is_none() {
            self.skip(
                path,
                "its name is not Unicode text; rename it to use it".to_owned(),
            );
            return None;
        }
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(source) => {
                self.skip(path, unreadable("file", &source));
                return None;
            }
        };
        if kind.is_dir() {
            self.folders.push(Entry {
                names: composed(&path),
                path: path.clone(),
                bytes: 0,
            });
            return Some(path);
        }
        let bytes = if kind.is_symlink() {
            linked_file(root, &path)
        } else if kind.is_file() {
            entry
                .metadata()
                .map(|m| m.len())
                .map_err(|source| unreadable("file", &source))
        } else {
            // Opening a pipe would wait for ever.
            Err("It is a pipe or a device, not a file. Remove it from the folder.".to_string())
        };
        match bytes {
            Ok(bytes) => self.files.push(Entry {
                names: composed(&path),
                path,
                bytes,
            }),
            Err(reason) => self.skip(path, reason),
        }
        None
    }

    fn skip(&mut self, path: PathBuf, reason: String) {
        self.skipped.push(SkippedFile { path, reason });
    }
}

/// Bytes of the plain file that a link leads to, when that stands inside the folder.
fn linked_file(root: &Path, path: &Path) -> Result<u64, String> {
    let target = root.join(path).canonicalize().map_err(|_| {
        "It is a link that leads nowhere. Remove it, or put the file itself here.".to_string()
    })?;
    if !target.starts_with(root) {
        return Err(
            "It is a link that leaves the folder. Copy what it points at into the folder."
                .to_string(),
        );
    }
    let inside = target.strip_prefix(root).map(composed).unwrap_or_default();
    if inside.iter().any(|name| is_litter(name)) {
        return Err("It is a link to a hidden file. Put the file itself here.".to_string());
    }
    match target.metadata() {
        Ok(m) if m.is_file() => Ok(m.len()),
        Ok(m) if m.is_dir() && root.join(path).starts_with(&target) => {
            Err("It is a link back to a folder that it stands in. Remove it.".to_string())
        }
        Ok(_) => Err("It is a link to a folder. Put the folder itself here.".to_string()),
        Err(source) => Err(unreadable("file", &source)),
    }
}

/// What systems leave behind, and whatever is hidden.
fn is_litter(name: &str) -> bool {
    const LEFT_BY_SYSTEMS: [&str; 4] = ["__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini"];
    // Finder's custom icon is named "Icon" and a carriage return.
    name.starts_with('.')
        || name == "Icon\r"
        || LEFT_BY_SYSTEMS.contains(&name.to_lowercase().as_str())
}

fn unreadable(what: &str, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("No permission to read this {what}. Allow reading it, then look again.")
        }
        _ => format!("This {what} cannot be read: {source}. Copy it here again."),
    }
}

fn composed(path: &Path) -> Vec<String> {
    path.components()
        .map(|c| c.as_os_str().to_string_lossy().nfc().collect())
        .collect()
}

/// A single file as if it stood alone in its folder.
pub(crate) fn alone(file: &Path) -> io::Result<Walk> {
    let name = PathBuf::from(file.file_name().unwrap_or_default());
    let entry = Entry {
        names: composed(&name),
        path: name,
        bytes: file.metadata()?.len(),
    };
    Ok(Walk {
        files: vec![entry],
        ..Walk::default()
    })
}
