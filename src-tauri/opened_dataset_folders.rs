//! The folders that were dropped or chosen, by id. A task reads each of them and watches it for
//! changes until it is trained.

use crate::data_choices::DataChoices;
use crate::duplicate_search::DuplicateSearch;
use crate::inspection_view::shown;
use crate::lock_mutex::lock;
use crate::machine_readings::Readings;
use crate::plan_page;
use crate::starting_point;
use crate::window_types::{CommandError, InspectionView};
use dataset::{
    ClassSelection, DatasetError, DetectedDataset, InspectOptions, ReadProgress, StopReading, Task,
    Watch, detect, watch,
};
use runlog::RunConfig;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tauri::async_runtime::{spawn, spawn_blocking};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Seed that chooses the held-out samples, unless the settings have another one.
pub const SEED: u64 = dataset::DEFAULT_SEED;

/// Shown if the user ends the reading of a folder.
const STOPPED: &str = "Ebb stopped reading this folder. Open the folder again to read it.";

/// All folders of this process.
pub struct OpenedDatasetFolders {
    folders: Mutex<Vec<Arc<Folder>>>,
    readings: Arc<Readings>,
}

struct Folder {
    id: String,
    path: PathBuf,
    state: Mutex<State>,
    duplicates: Arc<DuplicateSearch>,
}

/// A folder as it was read last.
pub struct ReadFolder {
    /// Version of its view.
    pub version: u64,
    /// The dropped folder or file.
    pub path: PathBuf,
    /// Its samples; `None` if it cannot be read. It may be unsuitable for training.
    pub samples: Option<Arc<DetectedDataset>>,
    /// What of them is used.
    pub choices: DataChoices,
}

#[derive(Default)]
struct State {
    view: Option<InspectionView>,
    /// What of the folder is used.
    choices: DataChoices,
    /// The choices that it was read with last.
    read_choices: DataChoices,
    /// Everything that was found, also what is left out.
    samples: Option<Arc<DetectedDataset>>,
    /// What is trained on; `None` if the folder cannot be trained.
    found: Option<Arc<DetectedDataset>>,
    /// Watches the folder. Without it and `wake`, the task ends.
    watch: Option<Watch>,
    /// Makes the task read the folder again; `None` if the folder is not watched.
    wake: Option<UnboundedSender<()>>,
    following: bool,
    /// Ends the reading that is under way.
    stop: StopReading,
}

impl OpenedDatasetFolders {
    /// Without a folder.
    pub fn new(readings: Arc<Readings>) -> Self {
        OpenedDatasetFolders {
            folders: Mutex::default(),
            readings,
        }
    }

    /// Starts to inspect the folder or file at `path`, and returns the id of the inspection. A
    /// folder that is still being read for the first time is read no further.
    pub fn open(&self, path: &Path) -> String {
        let folder = self.at(path);
        self.stop_others(&folder);
        self.follow(&folder);
        folder.id.clone()
    }

    /// Starts to inspect a folder, of which only a part is used.
    pub fn open_with(&self, path: &Path, choices: DataChoices) -> String {
        let folder = self.at(path);
        self.stop_others(&folder);
        self.set_choices(&folder, choices);
        self.follow(&folder);
        folder.id.clone()
    }

    /// Ends the reading of a folder. It is read again when it is opened again.
    pub fn stop_reading(&self, id: &str) -> Result<(), CommandError> {
        lock(&self.folder(id)?.state).stop.stop();
        Ok(())
    }

    /// Ends the reading of folders that were never read completely.
    fn stop_others(&self, folder: &Arc<Folder>) {
        for other in lock(&self.folders).iter() {
            let state = lock(&other.state);
            if other.id != folder.id && state.samples.is_none() {
                state.stop.stop();
            }
        }
    }

    /// The known or a new folder at `path`.
    fn at(&self, path: &Path) -> Arc<Folder> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut folders = lock(&self.folders);
        let known = folders.iter().find(|folder| folder.path == path).cloned();
        known.unwrap_or_else(|| {
            let folder = Arc::new(Folder {
                id: format!("folder-{}", folders.len() + 1),
                path,
                state: Mutex::default(),
                duplicates: Arc::default(),
            });
            folders.push(Arc::clone(&folder));
            folder
        })
    }

    /// Changes what of a folder is used. The folder is read again.
    pub fn choose(&self, id: &str, choices: DataChoices) -> Result<(), CommandError> {
        let folder = self.folder(id)?;
        self.set_choices(&folder, choices);
        self.follow(&folder);
        Ok(())
    }

    fn set_choices(&self, folder: &Folder, choices: DataChoices) {
        let mut state = lock(&folder.state);
        if state.choices == choices {
            return;
        }
        state.choices = choices;
        if let Some(wake) = &state.wake {
            // Fails only if the task has ended; then the folder is read when it is shown.
            let _ = wake.send(());
        }
    }

    /// A config that uses only the chosen part of a folder.
    pub fn configured(&self, id: &str, config: RunConfig) -> Result<RunConfig, CommandError> {
        let folder = self.folder(id)?;
        let choices = lock(&folder.state).choices.clone();
        Ok(choices.apply(config))
    }

    /// The search for duplicates in a folder.
    pub fn duplicates(&self, id: &str) -> Result<Arc<DuplicateSearch>, CommandError> {
        Ok(Arc::clone(&self.folder(id)?.duplicates))
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
                let why = "The folder is still being read. Wait until all files have been read, then train.";
                CommandError::new("not_trainable", why)
            }));
        };
        let (choices, current) = {
            let state = lock(&folder.state);
            (state.choices.clone(), state.choices == state.read_choices)
        };
        if seed == SEED && current {
            return Ok(DetectedDataset::clone(&found));
        }
        // With another seed, or before the folder was read again with other choices.
        let (_, found) = folder
            .read(&choices, seed, &StopReading::default(), &|_| {})
            .map_err(|why| CommandError::new("not_trainable", why))?;
        Ok(DetectedDataset::clone(&found))
    }

    /// The samples of a folder, also of one that cannot be trained.
    ///
    /// # Errors
    /// The id is unknown, or the folder is still being read.
    pub fn read(&self, id: &str) -> Result<ReadFolder, CommandError> {
        let folder = self.folder(id)?;
        let state = lock(&folder.state);
        match state.view.as_ref().filter(|view| !view.reading) {
            Some(view) => Ok(ReadFolder {
                version: view.version,
                path: folder.path.clone(),
                samples: state.samples.clone(),
                choices: state.choices.clone(),
            }),
            None => {
                let why = "The folder is still being read. Ebb shows the data when all files have been read.";
                Err(CommandError::new("busy", why))
            }
        }
    }

    /// Where the folder is.
    pub fn path(&self, id: &str) -> Result<PathBuf, CommandError> {
        Ok(self.folder(id)?.path.clone())
    }

    /// Stops watching the folder, because it is being trained.
    pub fn rest(&self, id: &str) {
        let Ok(folder) = self.folder(id) else {
            return;
        };
        folder.duplicates.keep_only(None);
        let mut state = lock(&folder.state);
        let watch = state.watch.take();
        state.wake = None;
        drop(state);
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
        let (changes, changed) = unbounded_channel();
        let wake = changes.clone();
        // Watched before the first read, so that no change is missed.
        let watched = watch(&folder.path, move || {
            // Fails only if the folder is no longer watched.
            let _ = changes.send(());
        });
        let unwatched = match watched {
            Ok(watch) => {
                state.watch = Some(watch);
                state.wake = Some(wake);
                None
            }
            Err(DatasetError::Unwatchable { .. }) => watched.err().map(|error| error.to_string()),
            // The inspection reports every other error.
            Err(_) => None,
        };
        if state.stop.is_stopped() {
            let version = state.view.as_ref().map_or(0, |view| view.version) + 1;
            state.view = Some(InspectionView {
                version,
                ..beginning(folder)
            });
        }
        state.view.get_or_insert_with(|| beginning(folder));
        drop(state);
        let (folder, readings) = (Arc::clone(folder), Arc::clone(&self.readings));
        spawn(async move {
            read_on(&folder, &readings, unwatched, changed).await;
            lock(&folder.state).following = false;
        });
    }
}

/// Reads the folder, and reads it again after every change, until it is no longer watched or the
/// user stops the reading.
async fn read_on(
    folder: &Arc<Folder>,
    readings: &Arc<Readings>,
    unwatched: Option<String>,
    mut changed: UnboundedReceiver<()>,
) {
    loop {
        let (folder, readings) = (Arc::clone(folder), Arc::clone(readings));
        let unwatched = unwatched.clone();
        let read = spawn_blocking(move || read_once(&folder, &readings, unwatched));
        // After a stop or a panic the folder is read again when it is shown.
        if !read.await.unwrap_or(false) || changed.recv().await.is_none() {
            return;
        }
        while changed.try_recv().is_ok() {}
    }
}

/// Reads the folder and shows what was found. Returns `false` if the user stopped the reading.
fn read_once(folder: &Folder, readings: &Readings, unwatched: Option<String>) -> bool {
    let stop = StopReading::default();
    let choices = {
        let mut state = lock(&folder.state);
        state.stop = stop.clone();
        state.choices.clone()
    };
    let found = folder.read(&choices, SEED, &stop, &|read| folder.progress(read));
    let is_stopped = stop.is_stopped() && found.is_err();
    let machine = readings.now();
    let refused = |why: String| {
        let code = if is_stopped {
            "stopped"
        } else if folder.path.exists() {
            "not_trainable"
        } else {
            "data_missing"
        };
        Some(CommandError::new(code, why))
    };
    let mut view = match &found {
        Ok((_, found)) => shown(found),
        Err(error) => InspectionView {
            refusal: refused(error.clone()),
            ..beginning(folder)
        },
    };
    view.reading = false;
    view.notes.extend(unwatched);
    if let (Ok((_, found)), None) = (&found, &view.refusal) {
        match plan_page::all(found, &machine) {
            Ok(plans) => {
                view.plans = plans;
                view.notes.extend(plan_page::reasons_of_defaults(found));
                view.notes.extend(starting_point::note(found));
            }
            Err(error) => view.refusal = refused(error.to_string()),
        }
    }
    folder.show(view, found.ok(), choices);
    !is_stopped
}

/// All samples of a folder, and those that are used.
type Samples = (Arc<DetectedDataset>, Arc<DetectedDataset>);

impl Folder {
    /// Reads the folder and selects what is used.
    ///
    /// # Errors
    /// Why it cannot be read, and what to do.
    fn read(
        &self,
        choices: &DataChoices,
        seed: u64,
        stop: &StopReading,
        on_progress: &dyn Fn(ReadProgress),
    ) -> Result<Samples, String> {
        let config = choices.apply(RunConfig {
            seed: Some(seed),
            ..RunConfig::default()
        });
        let options = trainer::inspect_options(&config).map_err(|error| error.to_string())?;
        let all = InspectOptions {
            classes: ClassSelection::default(),
            leave_duplicates_out: false,
            stop: stop.clone(),
            ..options.clone()
        };
        let texts = trainer::text_options(&config, None);
        let found = detect(&self.path, &all, &texts, on_progress);
        let all = Arc::new(found.map_err(|error| match error {
            DatasetError::Stopped => STOPPED.to_owned(),
            other => other.to_string(),
        })?);
        let duplicates = if options.leave_duplicates_out {
            Some(self.duplicates.find(&all)?)
        } else {
            None
        };
        if options.classes.is_all() && duplicates.is_none() {
            return Ok((Arc::clone(&all), all));
        }
        // A class may have been renamed since it was chosen.
        let classes = ClassSelection {
            allow_unknown: true,
            ..options.classes
        };
        let selected = DetectedDataset::clone(&all).select(&classes, duplicates.as_deref());
        let selected = selected.map_err(|error| error.to_string())?;
        Ok((all, Arc::new(selected)))
    }

    /// Shows the number of files read so far.
    fn progress(&self, read: ReadProgress) {
        let mut state = lock(&self.state);
        let view = state.view.as_mut().filter(|view| view.reading);
        // A list of files that is not complete is not a number of files that were read.
        if let Some(view) = view.filter(|_| read.all_files > 0 && !read.compares) {
            view.version += 1;
            view.files_seen = read.files;
        }
    }

    fn show(&self, mut view: InspectionView, read: Option<Samples>, choices: DataChoices) {
        let mut state = lock(&self.state);
        state.read_choices = choices;
        view.id.clone_from(&self.id);
        view.version = state.view.as_ref().map_or(0, |old| old.version) + 1;
        view.files_seen = match read {
            Some(_) => view.samples + view.skipped.len() as u64,
            None => 0,
        };
        let (samples, found) = read.unzip();
        self.duplicates
            .keep_only(state.samples.as_deref().zip(samples.as_deref()));
        state.samples = samples;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use trainer::Machine;

    fn until(done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never is");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_folder_is_read_again_after_a_change_until_it_is_trained() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let file = home.path().join("rows.csv");
        std::fs::write(&file, "label,text\na,one\nb,two\n").expect("it can be written");
        let inspections = OpenedDatasetFolders::new(Arc::new(Readings::new(Machine::default())));
        let id = inspections.open(home.path());
        // The version of the view, once the folder has been read.
        let version = || {
            let view = inspections.view(&id, u64::MAX).expect("it is known");
            let read = view.filter(|view| !view.reading);
            read.map_or(0, |view| view.version)
        };
        until(|| version() > 0);
        let before = version();
        std::fs::write(&file, "label,text\na,one\nb,two\na,three\n").expect("it can be written");
        until(|| version() > before);
        inspections.rest(&id);
        let folder = inspections.folder(&id).expect("it is known");
        until(|| !lock(&folder.state).following);
    }

    #[test]
    fn a_reading_that_is_stopped_ends_and_begins_again_when_it_is_shown() {
        let home = tempfile::tempdir().expect("a temporary folder");
        for folder in 0..2000 {
            let folder = home.path().join(folder.to_string());
            std::fs::create_dir(&folder).expect("it can be made");
            for file in 0..20 {
                std::fs::write(folder.join(format!("{file}.png")), "no image").expect("it can be");
            }
        }
        let inspections = OpenedDatasetFolders::new(Arc::new(Readings::new(Machine::default())));
        let id = inspections.open(home.path());
        let seen = |version| inspections.view(&id, version).expect("it is known");
        inspections.stop_reading(&id).expect("it is known");
        // Stopped before it had begun, or at once.
        let folder = inspections.folder(&id).expect("it is known");
        until(|| {
            inspections.stop_reading(&id).expect("it is known");
            !lock(&folder.state).following
        });
        let refusal = seen(u64::MAX).and_then(|view| view.refusal);
        assert_eq!(refusal.map(|refusal| refusal.code), Some("stopped".into()));
        // Another folder does not wait for it.
        let other = tempfile::tempdir().expect("a temporary folder");
        inspections.open(other.path());
        until(|| {
            seen(0).is_some_and(|view| {
                !view.reading && view.refusal.is_some_and(|why| why.code != "stopped")
            })
        });
    }
}
