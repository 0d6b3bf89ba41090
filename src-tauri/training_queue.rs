//! The runs that wait for their turn. They are saved, so that they survive a restart. After a
//! restart, and after the user stops a run, the queue waits until the user starts it again.

use crate::lock_mutex::lock;
use crate::window_types::CommandError;
use runlog::RunConfig;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};
use ts_rs::TS;

/// The runs that wait in this process.
pub struct TrainingQueue {
    /// Where they are saved.
    file: PathBuf,
    state: Mutex<State>,
    next_id: AtomicU64,
}

#[derive(Default)]
struct State {
    runs: Vec<Waiting>,
    /// Whether no run starts until the user starts the queue.
    holds: bool,
    /// The run that is being started.
    starting: Option<String>,
}

struct Waiting {
    /// Its id while Ebb runs.
    id: String,
    run: QueuedRun,
    /// Why it could not be started.
    problem: Option<String>,
}

/// A run that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedRun {
    /// The name of its dataset.
    pub name: String,
    /// "Image classification, ConvNet".
    pub what: String,
    /// Its settings, with the folder.
    pub config: RunConfig,
    /// The peak memory that was estimated when it was added, in bytes; 0 without an estimate.
    #[serde(default)]
    pub estimated_peak_bytes: u64,
    /// The ended run that goes on, instead of a new one.
    #[serde(default)]
    pub resume: Option<QueuedResume>,
}

/// An ended run that goes on when it is its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedResume {
    /// Its id.
    pub run: String,
    /// The run ends after this many epochs in all; `None` if it ends as planned.
    pub epochs: Option<u64>,
}

/// Result of `queue`.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct QueueView {
    /// In the order in which they will train.
    pub runs: Vec<QueuedView>,
    /// Whether no run starts until the user starts the queue.
    pub holds: bool,
}

/// A run that waits, as shown.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct QueuedView {
    /// Its id.
    pub id: String,
    /// The name of its dataset.
    pub name: String,
    /// "Image classification, ConvNet".
    pub what: String,
    /// Why it could not be started.
    pub problem: Option<String>,
}

/// A change of one run in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum QueueChange {
    /// Exchange it with the run before it.
    Earlier,
    /// Remove it.
    Remove,
}

impl TrainingQueue {
    /// The runs that are saved in `file`; the queue holds. Entries that cannot be read are left
    /// out.
    pub fn from_file(file: PathBuf) -> Self {
        let queue = TrainingQueue {
            state: Mutex::default(),
            next_id: AtomicU64::new(1),
            file,
        };
        let saved = load(&queue.file).unwrap_or_else(|error| {
            eprintln!(
                "ebb: the queue of runs cannot be read from {}: {error}",
                queue.file.display()
            );
            Vec::new()
        });
        {
            let mut state = lock(&queue.state);
            state.holds = true;
            state.runs = saved.into_iter().map(|run| queue.waiting(run)).collect();
        }
        queue
    }

    fn waiting(&self, run: QueuedRun) -> Waiting {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        Waiting {
            id: format!("queued-{number}"),
            run,
            problem: None,
        }
    }

    /// Number of runs that wait.
    pub fn len(&self) -> usize {
        lock(&self.state).runs.len()
    }

    /// What is shown of the queue.
    pub fn view(&self) -> QueueView {
        let state = lock(&self.state);
        let view = |waiting: &Waiting| QueuedView {
            id: waiting.id.clone(),
            name: waiting.run.name.clone(),
            what: waiting.run.what.clone(),
            problem: waiting.problem.clone(),
        };
        QueueView {
            runs: state.runs.iter().map(view).collect(),
            holds: state.holds,
        }
    }

    /// Adds a run at the end, and starts the queue.
    ///
    /// # Errors
    /// The ended run that is to go on waits already.
    pub fn add(&self, run: QueuedRun) -> Result<(), CommandError> {
        let waiting = self.waiting(run);
        let mut state = lock(&self.state);
        let resumed = |waiting: &Waiting| waiting.run.resume.as_ref().map(|it| it.run.clone());
        let id = resumed(&waiting);
        if id.is_some() && state.runs.iter().any(|other| resumed(other) == id) {
            let why = "This run is already in the queue. Remove it there to change its epochs.";
            return Err(CommandError::new("busy", why));
        }
        state.runs.push(waiting);
        state.holds = false;
        self.save(&state);
        Ok(())
    }

    /// Moves or removes a run.
    ///
    /// # Errors
    /// The run no longer waits.
    pub fn change(&self, id: &str, change: QueueChange) -> Result<(), CommandError> {
        let mut state = lock(&self.state);
        let at = state.runs.iter().position(|waiting| waiting.id == id);
        let at = at.ok_or_else(|| {
            CommandError::new("unknown_id", "This run is no longer in the queue.")
        })?;
        match change {
            QueueChange::Earlier => state.runs.swap(at.saturating_sub(1), at),
            QueueChange::Remove => drop(state.runs.remove(at)),
        }
        self.save(&state);
        Ok(())
    }

    /// Starts the queue, also with the runs that could not be started before.
    pub fn start(&self) {
        let mut state = lock(&self.state);
        state.holds = false;
        for waiting in &mut state.runs {
            waiting.problem = None;
        }
    }

    /// Starts no further run until the user starts the queue.
    pub fn hold(&self) {
        lock(&self.state).holds = true;
    }

    /// The run to start now, which `began` must be told about; `None` if none may start.
    pub fn next(&self) -> Option<(String, QueuedRun)> {
        let mut state = lock(&self.state);
        if state.holds || state.starting.is_some() {
            return None;
        }
        let next = state.runs.iter().find(|it| it.problem.is_none())?;
        let next = (next.id.clone(), next.run.clone());
        state.starting = Some(next.0.clone());
        Some(next)
    }

    /// The run that `next` returned has begun, or why it has not. A run that another training was
    /// in the way of waits on; after a stop by the user, the whole queue holds.
    pub fn began(&self, id: &str, failed: Option<&CommandError>) {
        let mut state = lock(&self.state);
        state.starting = None;
        match failed {
            None => state.runs.retain(|waiting| waiting.id != id),
            Some(error) if error.code == "busy" => {}
            Some(error) if error.code == "stopped" => state.holds = true,
            Some(error) => {
                let failed = state.runs.iter_mut().find(|waiting| waiting.id == id);
                if let Some(failed) = failed {
                    failed.problem = Some(error.message.clone());
                }
            }
        }
        self.save(&state);
    }

    fn save(&self, state: &State) {
        let runs: Vec<&QueuedRun> = state.runs.iter().map(|waiting| &waiting.run).collect();
        if let Err(error) = save(&self.file, &runs) {
            eprintln!("ebb: the queue of runs cannot be saved: {error}");
        }
    }
}

fn load(file: &Path) -> io::Result<Vec<QueuedRun>> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&text)?;
    let read = |entry| serde_json::from_value(entry).ok();
    Ok(entries.into_iter().filter_map(read).collect())
}

fn save(file: &Path, runs: &[&QueuedRun]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        disk::create_dir_all(folder)?;
    }
    // Only one process has the window, and a draft of an earlier one is left by a kill.
    disk::remove_drafts_of(file);
    disk::write_atomic(file, serde_json::to_string_pretty(runs)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window_types::tests::current_types;

    fn run(name: &str) -> QueuedRun {
        QueuedRun {
            name: name.to_owned(),
            what: "Image classification, ConvNet".to_owned(),
            config: RunConfig {
                folder: Some(PathBuf::from("/data").join(name)),
                learning_rate: Some(0.1),
                ..RunConfig::default()
            },
            estimated_peak_bytes: 3 << 30,
            resume: None,
        }
    }

    fn resumed(run_id: &str, epochs: Option<u64>) -> QueuedRun {
        QueuedRun {
            config: RunConfig::default(),
            estimated_peak_bytes: 0,
            resume: Some(QueuedResume {
                run: run_id.to_owned(),
                epochs,
            }),
            ..run(run_id)
        }
    }

    fn names(queue: &TrainingQueue) -> Vec<String> {
        let runs = queue.view().runs.into_iter();
        runs.map(|view| view.name).collect()
    }

    fn queue_of(home: &Path, names: &[&str]) -> TrainingQueue {
        let queue = TrainingQueue::from_file(home.join("ebb/queue.json"));
        for name in names {
            queue.add(run(name)).expect("a new run waits only once");
        }
        queue
    }

    #[test]
    fn the_types_of_the_queue_are_current() {
        current_types(|config| {
            QueueView::export_all(config)?;
            QueueChange::export_all(config)
        });
    }

    #[test]
    fn runs_start_in_their_order_one_at_a_time() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let queue = queue_of(home.path(), &["a", "b"]);
        let (first, started) = queue.next().expect("it starts");
        assert_eq!(started, run("a"));
        assert!(queue.next().is_none(), "one is being started");
        queue.began(&first, None);
        assert_eq!(names(&queue), ["b"]);
        assert!(queue.next().is_some());
    }

    #[test]
    fn an_ended_run_waits_once_and_survives_a_restart() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let queue = queue_of(home.path(), &["a"]);
        queue.add(resumed("r1", Some(40))).expect("it waits");
        let again = queue.add(resumed("r1", None));
        assert_eq!(again.map_err(|error| error.code), Err("busy".to_owned()));
        queue.add(resumed("r2", None)).expect("it waits");
        let restarted = queue_of(home.path(), &[]);
        assert_eq!(names(&restarted), ["a", "r1", "r2"]);
        restarted.start();
        let (first, _) = restarted.next().expect("it starts");
        restarted.began(&first, None);
        let next = restarted.next().map(|(_, run)| run);
        assert_eq!(next, Some(resumed("r1", Some(40))));
    }

    #[test]
    fn a_run_that_cannot_start_shows_why_and_the_next_one_starts() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let queue = queue_of(home.path(), &["a", "b"]);
        let (first, _) = queue.next().expect("it starts");
        let missing = CommandError::new("failed", "The folder is missing.");
        queue.began(&first, Some(&missing));
        let problem = queue.view().runs[0].problem.clone();
        assert_eq!(problem.as_deref(), Some("The folder is missing."));
        let (second, other) = queue.next().expect("the other one");
        assert_eq!(other, run("b"));
        queue.began(&second, Some(&CommandError::new("busy", "")));
        assert_eq!(names(&queue), ["a", "b"], "it waits on");
        queue.start();
        assert_eq!(queue.next().map(|(id, _)| id), Some(first));
    }

    #[test]
    fn a_stop_by_the_user_holds_the_queue_until_it_is_started() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let queue = queue_of(home.path(), &["a"]);
        let (first, _) = queue.next().expect("it starts");
        queue.began(&first, Some(&CommandError::new("stopped", "")));
        assert!(queue.view().holds && queue.next().is_none());
        queue.start();
        assert!(queue.next().is_some());
    }

    #[test]
    fn the_order_survives_a_restart_and_the_queue_then_holds() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let queue = queue_of(home.path(), &["a", "b", "c"]);
        let ids: Vec<String> = queue.view().runs.into_iter().map(|run| run.id).collect();
        let change = |id: &str, change| queue.change(id, change).map_err(|error| error.code);
        change(&ids[2], QueueChange::Earlier).expect("it waits");
        change(&ids[0], QueueChange::Earlier).expect("it is the first");
        change(&ids[1], QueueChange::Remove).expect("it waits");
        let again = change(&ids[1], QueueChange::Remove);
        assert_eq!(again, Err("unknown_id".to_owned()));
        let restarted = queue_of(home.path(), &[]);
        assert_eq!(names(&restarted), ["a", "c"]);
        assert!(restarted.view().holds && restarted.next().is_none());
        restarted.start();
        assert_eq!(restarted.next().map(|(_, run)| run), Some(run("a")));
    }

    #[test]
    fn an_entry_of_an_earlier_version_has_no_estimate() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let file = home.path().join("queue.json");
        let mut entry = serde_json::to_value(run("a")).expect("it can be written");
        let removed = entry
            .as_object_mut()
            .and_then(|entry| entry.remove("estimated_peak_bytes"));
        assert!(removed.is_some());
        fs::write(&file, serde_json::json!([entry]).to_string()).expect("it can be written");
        let queue = TrainingQueue::from_file(file);
        queue.start();
        let estimate = queue.next().map(|(_, run)| run.estimated_peak_bytes);
        assert_eq!(estimate, Some(0));
    }

    #[test]
    fn entries_that_cannot_be_read_are_left_out() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let file = home.path().join("queue.json");
        let entries = serde_json::json!([{ "name": "of a later version" }, run("a")]);
        fs::write(&file, entries.to_string()).expect("it can be written");
        assert_eq!(names(&TrainingQueue::from_file(file.clone())), ["a"]);
        fs::write(&file, "[{").expect("it can be written");
        assert_eq!(TrainingQueue::from_file(file).len(), 0);
    }
}
