//! The runs of the window and the terminal: the watched store, and run folders opened by hand. Each
//! run is folded from its events as they appear. Opening a run only reads its folder.

use crate::lock_mutex::lock;
use crate::run_row;
use crate::window_types::{CommandError, RunRow};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use runlog::{
    Pull, Query, Run, RunEvent, RunFolder, RunStatus, RunStore, RunSummary, RunlogError, Started,
    Tail,
};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The clock of a run in another process stops this long after its newest event.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// All runs that can be shown.
pub struct Runs {
    store: RunStore,
    /// Run folders outside the store, newest last.
    opened: Mutex<Vec<(String, RunFolder)>>,
    followed: Mutex<HashMap<String, Arc<Mutex<Followed>>>>,
    /// Runs that had ended when the list was first shown, from the index of runs. A row of such a
    /// run needs no events, until a file of the run changes or the run is opened.
    ended: OnceLock<HashMap<String, RunSummary>>,
    changed: Arc<Changed>,
    /// `None` if the system cannot watch the store; then each run is read every time.
    watcher: Option<RecommendedWatcher>,
}

/// Ids of the runs in the store whose files changed.
#[derive(Default)]
struct Changed(Mutex<HashSet<String>>);

/// One run, folded up to the end of its file.
struct Followed {
    folder: RunFolder,
    tail: Tail,
    run: Run,
    /// When its newest event was read, and that event's time on the run's clock.
    read: Instant,
    event_ms: u64,
    /// Why its events cannot be read.
    trouble: Option<RunlogError>,
}

impl Runs {
    /// Watches the store. A store that cannot be created or watched is still read.
    pub fn watch(store: RunStore) -> Runs {
        let changed = Arc::new(Changed::default());
        let watcher = watch(store.root(), Arc::clone(&changed)).ok();
        Runs {
            store,
            opened: Mutex::default(),
            followed: Mutex::default(),
            ended: OnceLock::new(),
            changed,
            watcher,
        }
    }

    /// Where new runs are created.
    pub fn store(&self) -> &RunStore {
        &self.store
    }

    /// Opens a run folder by its path and returns its id.
    pub fn open(&self, path: &Path) -> Result<String, RunlogError> {
        let folder = RunFolder::open(path)?;
        let root = self.store.root();
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        if folder.path.parent() == Some(&root) {
            return Ok(folder.id());
        }
        let mut opened = lock(&self.opened);
        if let Some((id, _)) = opened.iter().find(|(_, known)| *known == folder) {
            return Ok(id.clone());
        }
        let id = format!("{} ({})", folder.id(), opened.len() + 1);
        opened.push((id.clone(), folder));
        Ok(id)
    }

    /// The folder of an id.
    pub fn folder(&self, id: &str) -> Result<RunFolder, CommandError> {
        if let Some((_, folder)) = lock(&self.opened).iter().find(|(known, _)| known == id) {
            return Ok(folder.clone());
        }
        // An id is a single name; anything that looks like a path is unknown.
        let mut parts = Path::new(id).components();
        let is_name = matches!(
            (parts.next(), parts.next()),
            (Some(std::path::Component::Normal(_)), None)
        );
        let folder = is_name.then(|| RunFolder::open(self.store.root().join(id)).ok());
        folder.flatten().ok_or_else(|| CommandError::unknown("run"))
    }

    /// How a run started.
    pub fn started(&self, id: &str) -> Result<Started, CommandError> {
        let followed = self.followed(id)?;
        let mut followed = lock(&followed);
        followed.refresh();
        let started = followed.run.started().cloned();
        started.ok_or_else(|| CommandError::unknown("run"))
    }

    /// Forgets a run whose folder was removed.
    pub fn forget(&self, id: &str) {
        lock(&self.followed).remove(id);
        lock(&self.opened).retain(|(known, _)| known != id);
    }

    /// A time range of a run.
    pub fn pull(&self, id: &str, query: Query) -> Result<Pull, CommandError> {
        let followed = self.followed(id)?;
        let mut followed = lock(&followed);
        followed.refresh();
        match &followed.trouble {
            Some(trouble) => Err(CommandError::new("failed", trouble.to_string())),
            None => Ok(followed.run.pull(query)),
        }
    }

    /// What `read` finds in a run, as it is now.
    pub fn with_run<T>(&self, id: &str, read: impl FnOnce(&Run) -> T) -> Result<T, CommandError> {
        let followed = self.followed(id)?;
        let mut followed = lock(&followed);
        followed.refresh();
        Ok(read(&followed.run))
    }

    /// What the user calls a run, or its dataset's name.
    pub fn name(&self, id: &str) -> Result<String, CommandError> {
        let notes = self.folder(id)?.notes();
        self.with_run(id, |run| run_row::name(id, &notes, run))
    }

    /// All runs, newest first, after those opened by hand. `here` returns the rows of runs that
    /// train in this process.
    pub fn rows(&self, here: impl Fn(&str) -> Option<RunRow>) -> Result<Vec<RunRow>, CommandError> {
        let opened: Vec<String> = lock(&self.opened)
            .iter()
            .map(|(id, _)| id.clone())
            .collect();
        let stored = self.store.list()?;
        let ids = opened
            .into_iter()
            .rev()
            .chain(stored.iter().map(RunFolder::id));
        Ok(ids
            .filter_map(|id| {
                here(&id)
                    .or_else(|| self.ended_row(&id))
                    .or_else(|| self.row(&id))
            })
            .collect())
    }

    /// The row of a run that had ended before, and that nothing has changed since.
    fn ended_row(&self, id: &str) -> Option<RunRow> {
        let summary = self.ended.get_or_init(|| self.find_ended()).get(id)?;
        if lock(&self.followed).contains_key(id) || lock(&self.changed.0).contains(id) {
            return None;
        }
        Some(run_row::for_summary(id, &self.folder(id).ok()?, summary))
    }

    /// Without a watcher, each run is read every time.
    fn find_ended(&self) -> HashMap<String, RunSummary> {
        if self.watcher.is_none() {
            return HashMap::new();
        }
        let listed = self.store.summaries().unwrap_or_default();
        let ended = listed.into_iter().filter_map(|run| {
            let summary = run.summary.ok()?;
            let has_ended = summary.started.is_some() && run_row::has_ended(summary.status);
            has_ended.then(|| (run.folder.id(), summary))
        });
        ended.collect()
    }

    /// `None` if the folder is missing or has no event yet.
    fn row(&self, id: &str) -> Option<RunRow> {
        let followed = self.followed(id).ok()?;
        let mut followed = lock(&followed);
        if self.may_have_changed(id) || !run_row::has_ended(followed.run.status()) {
            followed.refresh();
        }
        let followed = &*followed;
        followed.run.started()?;
        let mut row = run_row::for_run(id, &followed.folder, &followed.run);
        if let Some(trouble) = &followed.trouble {
            (row.status, row.line) = (RunStatus::Failed, trouble.to_string());
        }
        Some(row)
    }

    fn may_have_changed(&self, id: &str) -> bool {
        self.watcher.is_none()
            || lock(&self.changed.0).remove(id)
            || lock(&self.opened).iter().any(|(known, _)| known == id)
    }

    fn followed(&self, id: &str) -> Result<Arc<Mutex<Followed>>, CommandError> {
        let folder = self.folder(id)?;
        let mut followed = lock(&self.followed);
        let found = followed.entry(id.to_owned()).or_insert_with(|| {
            Arc::new(Mutex::new(Followed {
                tail: Tail::new(folder.events_path()),
                folder,
                run: Run::default(),
                read: Instant::now(),
                event_ms: 0,
                trouble: None,
            }))
        });
        Ok(Arc::clone(found))
    }
}

impl Followed {
    /// Applies the new events, and checks whether a process still trains the run.
    fn refresh(&mut self) {
        // Checked before the events are read: if the run ends in between, its last event is already
        // there.
        let alive = self.folder.is_alive();
        match self.tail.poll() {
            Ok(events) => {
                self.trouble = None;
                if !events.is_empty() {
                    self.read = Instant::now();
                }
                events.iter().for_each(|event| self.run.apply(event));
                self.event_ms = events.last().map_or(self.event_ms, RunEvent::at_ms);
            }
            Err(trouble) => self.trouble = Some(trouble),
        }
        if !alive && self.run.started().is_some() {
            self.folder.mark_crashed(&mut self.run);
        } else if alive {
            // The clock does not wait for the next event.
            let silent = self.read.elapsed().min(LONGEST_SILENCE);
            self.run.advance(self.event_ms + silent.as_millis() as u64);
        }
    }
}

fn watch(root: &Path, changed: Arc<Changed>) -> notify::Result<RecommendedWatcher> {
    ::disk::create_dir_all(root).map_err(notify::Error::io)?;
    let root: PathBuf = root.canonicalize().map_err(notify::Error::io)?;
    let place = root.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Reading a run does not change it.
        let event = event.ok().filter(|event| !event.kind.is_access());
        let paths = event.map(|event| event.paths).unwrap_or_default();
        let names = paths
            .iter()
            .filter_map(|path| path.strip_prefix(&place).ok()?.iter().next());
        let ids = names.map(|name| name.to_string_lossy().into_owned());
        lock(&changed.0).extend(ids);
    })?;
    watcher.watch(&root, RecursiveMode::Recursive)?;
    Ok(watcher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog::{EventWriter, RunNotes, StopReason};

    fn runs() -> (tempfile::TempDir, Runs) {
        let home = tempfile::tempdir().expect("a temporary folder");
        let runs = Runs::watch(RunStore::open(home.path().join("runs")));
        (home, runs)
    }

    fn begun(store: &RunStore) -> (RunFolder, EventWriter) {
        let folder = store.create("birds").expect("it can be made");
        let mut writer = EventWriter::append(&folder).expect("it can be opened");
        let started = Started {
            name: "birds".into(),
            ..Started::default()
        };
        writer
            .write(&RunEvent::Started(Box::new(started)))
            .expect("it can be written");
        (folder, writer)
    }

    fn everything() -> Query {
        Query {
            columns: 100,
            ..Query::default()
        }
    }

    #[test]
    fn a_run_has_the_name_that_the_user_gave_it() {
        let (_home, runs) = runs();
        let (folder, _writer) = begun(runs.store());
        let name = || runs.name(&folder.id()).expect("it is there");
        assert_eq!(name(), "birds");
        let notes = RunNotes {
            name: "Finches: final".into(),
            ..RunNotes::default()
        };
        folder.write_notes(&notes).expect("they can be written");
        assert_eq!(name(), "Finches: final");
        let kind = crate::export_run::ExportKind::ReportPdf;
        assert_eq!(kind.file_name(&name()), "Finches- final report.pdf");
    }

    #[test]
    fn a_run_of_another_process_is_followed_to_its_end() {
        let (_home, runs) = runs();
        let (folder, mut writer) = begun(runs.store());
        let claim = folder.claim().expect("it is free");
        let status = |runs: &Runs| {
            let pull = runs.pull(&folder.id(), everything()).expect("it is there");
            (pull.header.status, pull.header.now_ms)
        };
        assert_eq!(status(&runs).0, RunStatus::Starting);
        std::thread::sleep(Duration::from_millis(20));
        let now_ms = status(&runs).1;
        assert!(
            now_ms >= 20,
            "the clock of the run must advance without events, but shows {now_ms} ms"
        );
        let stopped = RunEvent::Stopped {
            at_ms: 90_000,
            step: 3,
            reason: StopReason::Requested,
            message: "Stopped at step 3".into(),
        };
        writer.write(&stopped).expect("it can be written");
        assert_eq!(status(&runs), (RunStatus::Stopped, 90_000));
        drop(claim);
        assert_eq!(status(&runs), (RunStatus::Stopped, 90_000));
        let rows = runs.rows(|_| None).expect("it can be listed");
        assert_eq!(rows.len(), 1);
        assert!(
            !rows[0].here && !rows[0].can_resume,
            "there is no checkpoint"
        );
    }

    #[test]
    fn a_run_whose_process_is_missing_ended_early() {
        let (_home, runs) = runs();
        let (folder, _writer) = begun(runs.store());
        let pull = runs.pull(&folder.id(), everything()).expect("it is there");
        assert_eq!(pull.header.status, RunStatus::EndedEarly);
    }

    /// The list shows a run from the index, and then from its events once they change.
    #[test]
    fn a_run_that_had_ended_is_shown_from_the_index_until_it_changes() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let store = RunStore::open(home.path().join("runs"));
        let (folder, mut writer) = begun(&store);
        let stopped = |step| RunEvent::Stopped {
            at_ms: 90_000,
            step,
            reason: StopReason::Requested,
            message: "Stopped".into(),
        };
        writer.write(&stopped(3)).expect("it can be written");
        // As after a restart: nothing changes once the store is watched.
        let runs = Runs::watch(store);
        let line = || {
            runs.rows(|_| None).expect("it can be listed")[0]
                .line
                .clone()
        };
        let before = line();
        assert!(before.starts_with("Stopped by you"), "{before}");
        assert!(lock(&runs.followed).is_empty(), "its events were not read");
        writer.write(&stopped(4)).expect("it can be written");
        lock(&runs.changed.0).insert(folder.id());
        let row = runs.rows(|_| None).expect("it can be listed").remove(0);
        let mut run = Run::default();
        let events = runlog::read_events(&folder.events_path());
        let events = events.expect("they can be read");
        events.iter().for_each(|event| run.apply(event));
        let (shown, read) = (row.line, run_row::for_run(&row.id, &folder, &run).line);
        assert_eq!(shown, read);
        assert_eq!(lock(&runs.followed).len(), 1);
        runs.forget(&folder.id());
        std::fs::remove_dir_all(&folder.path).expect("it can be removed");
        assert!(runs.rows(|_| None).expect("it can be listed").is_empty());
    }

    #[test]
    fn an_id_is_never_a_path() {
        let (home, runs) = runs();
        let (folder, _writer) = begun(&RunStore::open(home.path().join("others")));
        for id in [
            format!("../others/{}", folder.id()),
            folder.path.display().to_string(),
            "..".into(),
            String::new(),
        ] {
            let refused = runs.folder(&id).map_err(|error| error.code);
            assert_eq!(refused, Err("unknown_id".to_owned()), "{id}");
        }
    }

    #[test]
    fn a_run_folder_from_elsewhere_is_shown_and_not_written_to() {
        let (home, runs) = runs();
        let (folder, _writer) = begun(&RunStore::open(home.path().join("others")));
        let files = || {
            let entries = std::fs::read_dir(&folder.path).expect("it can be read");
            entries.count()
        };
        let before = files();
        let id = runs.open(&folder.path).expect("it is a run");
        assert_eq!(
            runs.open(&folder.path).ok(),
            Some(id.clone()),
            "the same again"
        );
        assert_eq!(runs.rows(|_| None).expect("it can be listed")[0].id, id);
        runs.pull(&id, everything()).expect("it can be shown");
        assert_eq!(files(), before);
    }
}
