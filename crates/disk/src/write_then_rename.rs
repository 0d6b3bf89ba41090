//! Drafts: files and folders under a temporary name beside their place. They are written and synced
//! there and renamed, so that the place holds the old content or the new one at any moment. A crash
//! leaves a draft, which the next start removes.

use crate::operations::{list, remove_dir_all, remove_file, rename, sync_parent, sync_path, write};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// How the names of all drafts begin.
const PREFIX: &str = ".draft-";

/// The path of the draft of `path` in this process: `.draft-NAME.PROCESS` in the same folder.
pub fn draft_path(path: &Path) -> PathBuf {
    let mut name = draft_prefix(path);
    name.push(std::process::id().to_string());
    path.with_file_name(name)
}

/// Whether this is the name of a draft.
pub fn is_draft(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// How the names of the drafts of `path` begin, in all processes.
fn draft_prefix(path: &Path) -> OsString {
    let mut name = OsString::from(PREFIX);
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    name
}

/// A path as of [`draft_path`], for one of several threads that write the same file: another number
/// follows that of the process.
fn numbered_draft_path(path: &Path) -> PathBuf {
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed) % 1_000_000;
    let mut draft = draft_path(path).into_os_string();
    draft.push(format!("{number:06}"));
    draft.into()
}

/// Writes a file completely or not at all, and waits until it is on the disk. If several threads
/// write the same file, it is that of the last one.
///
/// # Errors
/// The disk refuses it. The file is as it was; only if the folder could not be synced, it may be
/// the new one.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = numbered_draft_path(path);
    let written = write(&draft, bytes)
        .and_then(|()| sync_path(&draft))
        .and_then(|()| rename(&draft, path));
    if let Err(error) = written {
        // It may not exist.
        let _ = remove_file(&draft);
        return Err(error);
    }
    sync_parent(path)
}

/// Removes the drafts that crashes left in a folder, as far as the disk allows it. No other process
/// may be writing one.
pub fn remove_drafts(folder: &Path) {
    remove_entries(folder, |name| name.starts_with(PREFIX.as_bytes()));
}

/// Removes the drafts of `path` that crashes left, as far as the disk allows it. No other process
/// may be writing one.
pub fn remove_drafts_of(path: &Path) {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let prefix = draft_prefix(path);
    remove_entries(parent.unwrap_or(Path::new(".")), |name| {
        let process = name.strip_prefix(prefix.as_encoded_bytes());
        process.is_some_and(|process| process.iter().all(u8::is_ascii_digit))
    });
}

fn remove_entries(folder: &Path, is_draft: impl Fn(&[u8]) -> bool) {
    for path in list(folder).unwrap_or_default() {
        let name = path.file_name().unwrap_or_default();
        if !is_draft(name.as_encoded_bytes()) {
            continue;
        }
        // What cannot be removed now is removed by the next start.
        let _ = if path.is_dir() {
            remove_dir_all(&path)
        } else {
            remove_file(&path)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(folder: &Path) -> Vec<String> {
        let paths = list(folder).expect("it can be listed");
        let name = |path: PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
        paths.into_iter().filter_map(name).collect()
    }

    #[test]
    fn a_file_is_replaced_and_no_draft_stays() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("config.toml");
        for text in ["first", "second, longer", "third"] {
            write_atomic(&path, text.as_bytes()).expect("it can be written");
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some(text));
        }
        assert_eq!(names(folder.path()), ["config.toml"]);
        // A folder is in the way of the rename.
        fs::create_dir_all(folder.path().join("taken/inside")).expect("it can be made");
        write_atomic(&folder.path().join("taken"), b"x").expect_err("a folder is there");
        assert_eq!(names(folder.path()), ["config.toml", "taken"]);
    }

    #[test]
    fn threads_may_write_the_same_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("settings.json");
        std::thread::scope(|scope| {
            for letter in [b'a', b'b'] {
                let path = &path;
                scope.spawn(move || {
                    for length in 1..100 {
                        let bytes = vec![letter; 100 * length];
                        write_atomic(path, &bytes).expect("it can be written");
                        let read = fs::read(path).expect("it is there");
                        assert!(read.iter().all(|byte| *byte == read[0]), "a mixture");
                    }
                });
            }
        });
        assert_eq!(names(folder.path()), ["settings.json"]);
    }

    #[test]
    fn drafts_of_crashes_are_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let all = [
            ".draft-birds.7",
            ".draft-birds.8",
            ".draft-birds.onnx.7",
            "birds",
        ];
        for name in all {
            fs::create_dir_all(folder.path().join(name).join("inside")).expect("it can be made");
        }
        fs::write(folder.path().join(".draft-notes.json.9"), "{").expect("it can be written");
        remove_drafts_of(&folder.path().join("birds"));
        assert_eq!(
            names(folder.path()),
            [".draft-birds.onnx.7", ".draft-notes.json.9", "birds"]
        );
        remove_drafts(folder.path());
        assert_eq!(names(folder.path()), ["birds"]);
    }
}
