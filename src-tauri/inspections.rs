//! The folders that were dropped or chosen, by id. Each is read on its own thread and watched for
//! changes until it is trained.

use crate::inspection_view::shown;
use crate::lock::lock;
use crate::machine_readings::Readings;
use crate::plan_view;
use crate::window_types::{CommandError, InspectionView};
use dataset::{
    DatasetError, DetectedDataset, InspectOptions, Task, TextOptions, Watch, detect, watch,
};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// Seed that chooses the held-out samples, unless the settings have another one.
pub const SEED: u64 = dataset::DEFAULT_SEED;

/// All folders of this process.
pub struct Inspections {
    folders: Mutex<Vec<Arc<Folder>>>,
    readings: Arc<Readings>,
}

struct Folder {
    id: String,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    view: Option<InspectionView>,
    found: Option<DetectedDataset>,
    /// Watches the folder. Dropping it ends the thread.
    watch: Option<Watch>,
    following: bool,
}

/// How the window inspects a folder.
pub fn options(seed: u64) -> InspectOptions {
    InspectOptions {
        seed,
        ..InspectOptions::default()
    }
}

impl Inspections {
    /// Without a folder.
    pub fn new(readings: Arc<Readings>) -> Self {
        Inspections {
            folders: Mutex::default(),
            readings,
        }
    }

    /// Starts to inspect the folder or file at `path`, and returns the id of the inspection.
    pub fn open(&self, path: &Path) -> String {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = {
            let mut folders = lock(&self.folders);
            let known = folders.iter().find(|folder| folder.path == path).cloned();
            known.unwrap_or_else(|| {
                let folder = Arc::new(Folder {
                    id: format!("folder-{}", folders.len() + 1),
                    path,
                    state: Mutex::default(),
                });
                folders.push(Arc::clone(&folder));
                folder
            })
        };
        self.follow(&folder);
        folder.id.clone()
    }

    /// The inspection so far; `None` if it is still version `seen`.
    pub fn view(&self, id: &str, seen: u64) -> Result<Option<InspectionView>, CommandError> {
        let folder = self.folder(id)?;
        if seen == 0 {
            // Read again, perhaps after a run: the folder may have changed.
            self.follow(&folder);
        }
        let state = lock(&folder.state);
        Ok(state.view.clone().filter(|view| view.version != seen))
    }

    /// The dataset, for a run with this seed.
    ///
    /// # Errors
    /// The folder is still being read, or cannot be trained.
    pub fn take(&self, id: &str, seed: u64) -> Result<DetectedDataset, CommandError> {
        let folder = self.folder(id)?;
        let found = lock(&folder.state).found.clone();
        let Some(found) = found else {
            let view = lock(&folder.state).view.clone();
            return Err(view.and_then(|view| view.refusal).unwrap_or_else(|| {
                let why = "The folder is still being read. Train when all files have been read.";
                CommandError::new("not_trainable", why)
            }));
        };
        if seed == SEED {
            return Ok(found);
        }
        let usual = TextOptions::default();
        detect(&folder.path, &options(seed), &usual, &|_| {})
            .map_err(|error| CommandError::new("not_trainable", error.to_string()))
    }

    /// Where the folder is.
    pub fn path(&self, id: &str) -> Result<PathBuf, CommandError> {
        Ok(self.folder(id)?.path.clone())
    }

    /// Stops watching the folder, because it is being trained.
    pub fn rest(&self, id: &str) {
        let watch = self
            .folder(id)
            .ok()
            .and_then(|folder| lock(&folder.state).watch.take());
        // Dropped without the lock, because this waits for a thread that may wait for the lock.
        drop(watch);
    }

    fn folder(&self, id: &str) -> Result<Arc<Folder>, CommandError> {
        let found = lock(&self.folders)
            .iter()
            .find(|folder| folder.id == id)
            .cloned();
        found.ok_or_else(|| CommandError::unknown("folder"))
    }

    fn follow(&self, folder: &Arc<Folder>) {
        let mut state = lock(&folder.state);
        if std::mem::replace(&mut state.following, true) {
            return;
        }
        let (changes, changed) = channel();
        // Watched before the first read, so that no change is missed.
        let watched = watch(&folder.path, move || {
            // Fails only if the folder is no longer watched.
            let _ = changes.send(());
        });
        let unwatched = match watched {
            Ok(watch) => {
                state.watch = Some(watch);
                None
            }
            Err(DatasetError::Unwatchable { .. }) => watched.err().map(|error| error.to_string()),
            // The inspection reports every other error.
            Err(_) => None,
        };
        state.view.get_or_insert_with(|| beginning(folder));
        drop(state);
        let (folder, readings) = (Arc::clone(folder), Arc::clone(&self.readings));
        thread::spawn(move || {
            read_on(&folder, &readings, unwatched.as_deref(), &changed);
            lock(&folder.state).following = false;
        });
    }
}

/// Reads the folder, and reads it again after every change, until it is no longer watched.
fn read_on(folder: &Folder, readings: &Readings, unwatched: Option<&str>, changed: &Receiver<()>) {
    loop {
        let found = detect(
            &folder.path,
            &options(SEED),
            &TextOptions::default(),
            &|files| folder.progress(files),
        );
        let machine = readings.now();
        let refused = |why: String| Some(CommandError::new("not_trainable", why));
        let mut view = match &found {
            Ok(found) => shown(found),
            Err(error) => InspectionView {
                refusal: refused(error.to_string()),
                ..beginning(folder)
            },
        };
        view.reading = false;
        view.notes.extend(unwatched.map(str::to_owned));
        if let (Ok(found), None) = (&found, &view.refusal) {
            match plan_view::all(found, &machine) {
                Ok(plans) => view.plans = plans,
                Err(error) => view.refusal = refused(error.to_string()),
            }
        }
        folder.show(view, found.ok());
        if changed.recv().is_err() {
            return;
        }
        while changed.try_recv().is_ok() {}
    }
}

impl Folder {
    /// Shows the number of files read so far.
    fn progress(&self, files: u64) {
        let mut state = lock(&self.state);
        if let Some(view) = state.view.as_mut().filter(|view| view.reading) {
            view.version += 1;
            view.files_seen = files;
        }
    }

    fn show(&self, mut view: InspectionView, found: Option<DetectedDataset>) {
        let mut state = lock(&self.state);
        view.id.clone_from(&self.id);
        view.version = state.view.as_ref().map_or(0, |old| old.version) + 1;
        view.files_seen = match found {
            Some(_) => view.samples + view.skipped.len() as u64,
            None => 0,
        };
        state.found = found.filter(|_| view.refusal.is_none());
        state.view = Some(view);
    }
}

/// The view before the first file was read.
fn beginning(folder: &Folder) -> InspectionView {
    let name = folder.path.file_name().unwrap_or(folder.path.as_os_str());
    InspectionView {
        id: folder.id.clone(),
        version: 1,
        name: name.to_string_lossy().into_owned(),
        path: folder.path.display().to_string(),
        files_seen: 0,
        reading: true,
        refusal: None,
        task: String::new(),
        sample: Task::ImageClassification.sample_noun().to_owned(),
        classes: Vec::new(),
        samples: 0,
        bytes: 0,
        typical_size: None,
        skipped: Vec::new(),
        notes: Vec::new(),
        split: String::new(),
        plans: Vec::new(),
    }
}
