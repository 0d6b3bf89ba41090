//! The operations of the file layer.

use crate::disk_trait::{Access, ask, perform};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file that is open for writing.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    path: PathBuf,
}

impl File {
    /// Opens the file at `path` to write from byte `len` on, which becomes its length. Creates the
    /// file if it does not exist.
    ///
    /// # Errors
    /// The folder does not exist, or the disk refuses it.
    pub fn open(path: &Path, len: u64) -> io::Result<File> {
        Ok(File {
            file: perform(|disk| disk.open(path, len))?,
            path: path.to_owned(),
        })
    }

    /// Shortens the file to `len` bytes; the next write is there.
    ///
    /// # Errors
    /// The disk failed.
    pub fn truncate(&mut self, len: u64) -> io::Result<()> {
        perform(|disk| disk.truncate(&self.file, &self.path, len))
    }

    /// Waits until the content is on the disk.
    ///
    /// # Errors
    /// The disk is full or failed.
    pub fn sync_data(&self) -> io::Result<()> {
        perform(|disk| disk.sync_data(&self.file, &self.path))
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        perform(|disk| disk.write(&self.file, &self.path, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates a folder in one that exists. The entry is not synced.
///
/// # Errors
/// It exists already, or the disk refuses it.
pub fn create_dir(path: &Path) -> io::Result<()> {
    perform(|disk| disk.create_dir(path, Access::Default))
}

/// Creates a folder that only its owner may open, in one that exists. The entry is not synced.
///
/// # Errors
/// It exists already, or the disk refuses it.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    perform(|disk| disk.create_dir(path, Access::Owner))
}

/// Creates a folder and those above it, as far as they are missing, and syncs the entry of each.
///
/// # Errors
/// The disk refuses one.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_dir_all(parent)?;
    }
    match create_dir(path) {
        // Another process has just created it.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created.and_then(|()| sync_parent(path)),
    }
}

/// Writes a whole file. Nothing is synced.
///
/// # Errors
/// The disk refuses it; a part of the file may be left.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::open(path, 0)?.write_all(bytes)
}

/// Lets a library write a whole file. Nothing is synced.
///
/// # Errors
/// Those of `write`; a part of the file may be left.
pub fn write_with(path: &Path, mut write: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    perform(|disk| disk.write_with(path, &mut write))
}

/// Copies a file. File systems that clone files need no space for the copy. Nothing is synced.
///
/// # Errors
/// `from` cannot be read, or the disk refuses the copy.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    write_with(to, |to| fs::copy(from, to).map(|_| ()))
}

/// Waits until the content of the file or the entries of the folder at `path` are on the disk.
///
/// # Errors
/// `path` cannot be opened, or the disk is full or failed.
pub fn sync_path(path: &Path) -> io::Result<()> {
    perform(|disk| disk.sync_path(path))
}

/// Waits until the entry of a file or folder is on the disk: syncs the folder that contains it.
///
/// # Errors
/// As [`sync_path`].
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_path(Path::new(".")),
        Some(parent) => sync_path(parent),
        None => Ok(()),
    }
}

/// Waits until a folder and everything in it is on the disk. Links are not followed.
///
/// # Errors
/// As [`sync_path`].
pub fn sync_all_in(folder: &Path) -> io::Result<()> {
    for path in list(folder)? {
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            sync_all_in(&path)?;
        } else if kind.is_file() {
            sync_path(&path)?;
        }
    }
    sync_path(folder)
}

/// Renames a file or folder. A file at the new path is replaced. The entries are not synced.
///
/// # Errors
/// The disk refuses it.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    perform(|disk| disk.rename(from, to))
}

/// Removes a file.
///
/// # Errors
/// It does not exist, or the disk refuses it.
pub fn remove_file(path: &Path) -> io::Result<()> {
    perform(|disk| disk.remove_file(path))
}

/// Removes an empty folder.
///
/// # Errors
/// It is not empty or does not exist, or the disk refuses it.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    perform(|disk| disk.remove_dir(path))
}

/// Removes a folder with everything in it.
///
/// # Errors
/// It does not exist, or the disk refuses it; a part may be left.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    perform(|disk| disk.remove_dir_all(path))
}

/// The paths of the entries of a folder, sorted.
///
/// # Errors
/// The folder does not exist or cannot be read.
pub fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    perform(|disk| disk.list(path))
}

/// Bytes that the user may still write on the volume of `path`.
///
/// # Errors
/// There is nothing at `path`, or its volume does not answer.
pub fn available_bytes(path: &Path) -> io::Result<u64> {
    perform(|disk| disk.available_bytes(path))
}

/// The time, to measure how long operations take. A simulated disk can be slow without waiting.
pub fn now() -> Instant {
    ask(|disk| disk.now())
}
