//! The operations that change files and folders, as a trait: the system's own, or those of a test.

use crate::available::available_bytes;
use crate::open_without_links::open_without_links;
use crate::sync::{sync, sync_data};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

/// Who may open a new folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everyone that the user's file creation mask allows.
    Default,
    /// Only the user who owns it (mode 0700).
    Owner,
}

impl Access {
    pub(crate) fn create_dir(self, path: &Path) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        if self == Access::Owner {
            builder.mode(0o700);
        }
        builder.create(path)
    }
}

/// The operations that change files and folders, and those that list a folder and measure the free
/// space.
pub trait Disk: Send + Sync {
    /// Creates a folder in one that exists.
    fn create_dir(&self, path: &Path, access: Access) -> io::Result<()>;
    /// Opens a file to write from byte `len` on, which becomes its length. Creates it if it does
    /// not exist. A link is refused.
    fn open(&self, path: &Path, len: u64) -> io::Result<File>;
    /// Writes some of `bytes` to an open file, and returns how many.
    fn write(&self, file: &File, path: &Path, bytes: &[u8]) -> io::Result<usize>;
    /// Shortens an open file to `len` bytes; the next write is there.
    fn truncate(&self, file: &File, path: &Path, len: u64) -> io::Result<()>;
    /// Waits until the content of an open file is on the disk.
    fn sync_data(&self, file: &File, path: &Path) -> io::Result<()>;
    /// Waits until the content of a file or the entries of a folder are on the disk.
    fn sync_path(&self, path: &Path) -> io::Result<()>;
    /// Lets `write` create the file at this path.
    fn write_with(
        &self,
        path: &Path,
        write: &mut dyn FnMut(&Path) -> io::Result<()>,
    ) -> io::Result<()>;
    /// Renames a file or folder. A file at the new path is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with everything in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// The paths of the entries of a folder, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Bytes that the user may still write on the volume of a path.
    fn available_bytes(&self, path: &Path) -> io::Result<u64>;
    /// The time, to measure how long operations take.
    fn now(&self) -> Instant;
}

/// The system's own operations.
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, path: &Path, access: Access) -> io::Result<()> {
        access.create_dir(path)
    }

    fn open(&self, path: &Path, len: u64) -> io::Result<File> {
        let file = open_without_links(path)?;
        self.truncate(&file, path, len)?;
        Ok(file)
    }

    fn write(&self, mut file: &File, _path: &Path, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    fn truncate(&self, mut file: &File, _path: &Path, len: u64) -> io::Result<()> {
        file.set_len(len)?;
        file.seek(SeekFrom::Start(len)).map(|_| ())
    }

    fn sync_data(&self, file: &File, _path: &Path) -> io::Result<()> {
        sync_data(file)
    }

    fn sync_path(&self, path: &Path) -> io::Result<()> {
        sync(&File::open(path)?)
    }

    fn write_with(
        &self,
        path: &Path,
        write: &mut dyn FnMut(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        write(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
        let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        available_bytes(path)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// The disk that a test has installed.
static INSTALLED: RwLock<Option<Arc<dyn Disk>>> = RwLock::new(None);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Ends the use of a disk that a test has installed when it is dropped.
pub struct Installed {
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Installed {
    fn drop(&mut self) {
        *INSTALLED.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Makes the whole process use `disk`. Waits while another one is installed.
pub(crate) fn install(disk: Arc<dyn Disk>) -> Installed {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    *INSTALLED.write().unwrap_or_else(PoisonError::into_inner) = Some(disk);
    Installed { _alone: alone }
}

/// Performs an operation on the disk in use. A signal that interrupts it repeats it.
pub(crate) fn perform<T>(mut operation: impl FnMut(&dyn Disk) -> io::Result<T>) -> io::Result<T> {
    ask(|disk| {
        loop {
            match operation(disk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    })
}

/// Asks the disk in use.
pub(crate) fn ask<T>(question: impl FnOnce(&dyn Disk) -> T) -> T {
    let installed = INSTALLED.read().unwrap_or_else(PoisonError::into_inner);
    let installed = installed.clone();
    question(installed.as_deref().unwrap_or(&RealDisk))
}
