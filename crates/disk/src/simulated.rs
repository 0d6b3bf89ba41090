//! A disk for tests. It works on real files below a folder, fails the operation that a test names,
//! and records every change, so that [`PowerCuts`] can leave what a power failure after any change
//! might leave.

mod power_cut;

pub use power_cut::{PowerCuts, Survivors};

use crate::disk_trait::{Access, Disk, Installed, RealDisk, install};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full from this operation on: every operation that needs space fails. If this
    /// operation is a write, it still writes its first half.
    NoSpace,
    /// This operation fails.
    InputOutput,
    /// From this operation on, nothing can be changed. If this operation is a write, it still
    /// writes its first half.
    ReadOnly,
    /// A signal interrupts this operation once.
    Interrupted,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 4] = [
        Fault::NoSpace,
        Fault::InputOutput,
        Fault::ReadOnly,
        Fault::Interrupted,
    ];

    fn error(self) -> io::Error {
        io::Error::from(match self {
            Fault::NoSpace => ErrorKind::StorageFull,
            Fault::InputOutput => return io::Error::from_raw_os_error(5),
            Fault::ReadOnly => ErrorKind::ReadOnlyFilesystem,
            Fault::Interrupted => ErrorKind::Interrupted,
        })
    }
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Creates or writes something.
    Fill,
    /// Renames, shortens or removes something.
    Change,
    Sync,
    List,
}

/// A change of the disk. Paths are relative to its folder.
#[derive(Debug, Clone)]
enum Change {
    CreateFolder(PathBuf),
    /// A file that is empty, in place of one that may exist.
    CreateFile(PathBuf),
    Write {
        path: PathBuf,
        at: u64,
        bytes: Vec<u8>,
    },
    Truncate {
        path: PathBuf,
        len: u64,
    },
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// A disk that fails when it is asked to.
pub struct SimulatedDisk {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    failure: Option<(Fault, usize)>,
    operations: Vec<String>,
    /// The operation that failed first.
    failed: Option<String>,
    changes: Vec<Change>,
    /// The free space that it reports, in bytes; `None` for that of the real disk.
    available_bytes: Option<u64>,
    /// How much longer the next sync takes.
    sync_delay: Option<Duration>,
    /// How much longer all operations so far have taken than they really did.
    delays: Duration,
}

impl SimulatedDisk {
    /// A disk below an empty folder. Everything outside is on the real disk.
    pub fn new(root: &Path) -> Arc<Self> {
        Arc::new(SimulatedDisk {
            root: root.to_owned(),
            state: Mutex::default(),
        })
    }

    /// Makes this process use the disk, until the value is dropped.
    pub fn install(self: &Arc<Self>) -> Installed {
        install(Arc::<SimulatedDisk>::clone(self))
    }

    /// Lets the operation with this number fail, counted from 0.
    pub fn fail(&self, fault: Fault, operation: usize) {
        self.state().failure = Some((fault, operation));
    }

    /// Makes the disk report this many free bytes; `None` reports those of the real disk.
    pub fn report_available_bytes(&self, bytes: Option<u64>) {
        self.state().available_bytes = bytes;
    }

    /// Makes the next sync take this much longer, as on a slow disk. [`crate::now`] shows this;
    /// nothing waits.
    pub fn delay_sync(&self, delay: Duration) {
        self.state().sync_delay = Some(delay);
    }

    /// Ends all failures.
    pub fn heal(&self) {
        self.state().failure = None;
    }

    /// The operations so far, such as "sync runs/a/config.toml".
    pub fn operations(&self) -> Vec<String> {
        self.state().operations.clone()
    }

    /// The operation that failed first.
    pub fn failed(&self) -> Option<String> {
        self.state().failed.clone()
    }

    /// The number of changes so far, syncs included.
    pub fn changes(&self) -> usize {
        self.state().changes.len()
    }

    /// The power failures after each of the changes so far.
    pub fn power_cuts(&self) -> PowerCuts {
        PowerCuts::new(self.state().changes.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path below the folder of this disk; `None` if it is elsewhere.
    fn own(&self, path: &Path) -> Option<PathBuf> {
        path.strip_prefix(&self.root).ok().map(Path::to_owned)
    }

    /// Counts an operation, and fails it if its turn has come.
    fn begin(&self, name: &str, kind: Kind, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let number = state.operations.len();
        let about = format!("{name} {}", path.display());
        state.operations.push(about.clone());
        let Some((fault, failing)) = state.failure else {
            return Ok(());
        };
        let fails = match fault {
            Fault::NoSpace => number >= failing && kind == Kind::Fill,
            Fault::ReadOnly => number >= failing && matches!(kind, Kind::Fill | Kind::Change),
            Fault::InputOutput | Fault::Interrupted => number == failing,
        };
        if !fails {
            return Ok(());
        }
        state.failed.get_or_insert(about);
        Err(fault.error())
    }

    fn record(&self, change: Change) {
        self.state().changes.push(change);
    }

    /// Performs an operation that is one change.
    fn change(
        &self,
        name: &str,
        kind: Kind,
        change: Change,
        operation: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let path = match &change {
            Change::CreateFolder(path)
            | Change::CreateFile(path)
            | Change::Write { path, .. }
            | Change::Truncate { path, .. }
            | Change::Sync(path)
            | Change::Rename(_, path)
            | Change::Remove(path) => path.clone(),
        };
        self.begin(name, kind, &path)?;
        if kind == Kind::Sync {
            let mut state = self.state();
            let delay = state.sync_delay.take().unwrap_or_default();
            state.delays += delay;
        }
        operation()?;
        self.record(change);
        Ok(())
    }

    /// Whether the disk has become full or read-only at this very operation. A write of more than
    /// one byte then writes its first half.
    fn is_half_written(&self, error: &io::Error) -> bool {
        let state = self.state();
        let number = state.operations.len().checked_sub(1);
        let stays = [ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem];
        stays.contains(&error.kind())
            && state
                .failure
                .is_some_and(|(_, failing)| number == Some(failing))
    }
}

impl Disk for SimulatedDisk {
    fn create_dir(&self, path: &Path, access: Access) -> io::Result<()> {
        let Some(own) = self.own(path) else {
            return RealDisk.create_dir(path, access);
        };
        let change = Change::CreateFolder(own);
        self.change("create", Kind::Fill, change, || access.create_dir(path))
    }

    fn open(&self, path: &Path, len: u64) -> io::Result<File> {
        let Some(own) = self.own(path) else {
            return RealDisk.open(path, len);
        };
        let before = fs::metadata(path).map(|file| file.len()).ok();
        let kind = if before.is_none() {
            Kind::Fill
        } else {
            Kind::Change
        };
        self.begin("open", kind, &own)?;
        let file = RealDisk.open(path, len)?;
        if before.is_none() {
            self.record(Change::CreateFile(own.clone()));
        }
        if before.unwrap_or(0) != len {
            self.record(Change::Truncate { path: own, len });
        }
        Ok(file)
    }

    fn write(&self, mut file: &File, path: &Path, bytes: &[u8]) -> io::Result<usize> {
        let Some(own) = self.own(path) else {
            return RealDisk.write(file, path, bytes);
        };
        let bytes = match self.begin("write", Kind::Fill, &own) {
            Err(error) if self.is_half_written(&error) && bytes.len() > 1 => {
                &bytes[..bytes.len() / 2]
            }
            begun => begun.map(|()| bytes)?,
        };
        let at = file.stream_position()?;
        let written = RealDisk.write(file, path, bytes)?;
        self.record(Change::Write {
            path: own,
            at,
            bytes: bytes[..written].to_owned(),
        });
        Ok(written)
    }

    fn truncate(&self, file: &File, path: &Path, len: u64) -> io::Result<()> {
        let Some(own) = self.own(path) else {
            return RealDisk.truncate(file, path, len);
        };
        let change = Change::Truncate { path: own, len };
        self.change("truncate", Kind::Change, change, || {
            RealDisk.truncate(file, path, len)
        })
    }

    fn sync_data(&self, file: &File, path: &Path) -> io::Result<()> {
        match self.own(path) {
            Some(own) => self.change("sync", Kind::Sync, Change::Sync(own), || Ok(())),
            None => RealDisk.sync_data(file, path),
        }
    }

    fn sync_path(&self, path: &Path) -> io::Result<()> {
        match self.own(path) {
            Some(own) => self.change("sync", Kind::Sync, Change::Sync(own), || {
                File::open(path).map(|_| ())
            }),
            None => RealDisk.sync_path(path),
        }
    }

    fn write_with(
        &self,
        path: &Path,
        write: &mut dyn FnMut(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(own) = self.own(path) else {
            return write(path);
        };
        let begun = self.begin("write", Kind::Fill, &own);
        let is_half = begun
            .as_ref()
            .is_err_and(|error| self.is_half_written(error));
        if begun.is_err() && !is_half {
            return begun;
        }
        write(path)?;
        if is_half {
            let file = File::options().write(true).open(path)?;
            file.set_len(file.metadata()?.len() / 2)?;
        }
        self.record(Change::CreateFile(own.clone()));
        self.record(Change::Write {
            path: own,
            at: 0,
            bytes: fs::read(path)?,
        });
        begun
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (Some(own_from), Some(own_to)) = (self.own(from), self.own(to)) else {
            return RealDisk.rename(from, to);
        };
        let change = Change::Rename(own_from, own_to);
        self.change("rename to", Kind::Change, change, || {
            RealDisk.rename(from, to)
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let Some(own) = self.own(path) else {
            return RealDisk.remove_file(path);
        };
        let change = Change::Remove(own);
        self.change("remove", Kind::Change, change, || fs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let Some(own) = self.own(path) else {
            return RealDisk.remove_dir(path);
        };
        let change = Change::Remove(own);
        self.change("remove", Kind::Change, change, || fs::remove_dir(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        if self.own(path).is_none() {
            return RealDisk.remove_dir_all(path);
        }
        for entry in self.list(path)? {
            if fs::symlink_metadata(&entry)?.is_dir() {
                self.remove_dir_all(&entry)?;
            } else {
                self.remove_file(&entry)?;
            }
        }
        self.remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        if let Some(own) = self.own(path) {
            self.begin("list", Kind::List, &own)?;
        }
        RealDisk.list(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        let reported = self.state().available_bytes;
        match reported.filter(|_| self.own(path).is_some()) {
            Some(bytes) => Ok(bytes),
            None => RealDisk.available_bytes(path),
        }
    }

    fn now(&self) -> Instant {
        RealDisk.now() + self.state().delays
    }
}
