//! One run folder: `config.toml`, `events.jsonl`, `checkpoints/step-000400`, and the lock that says who trains it.
//! Refuses to know what stands in a checkpoint.

use crate::{Run, RunConfig, RunlogError, read_events};
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const CONFIG: &str = "config.toml";
const EVENTS: &str = "events.jsonl";
const LOCK: &str = "lock";

/// A folder that holds one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    /// Where it is.
    pub path: PathBuf,
}

/// A checkpoint in a run folder; its content is verified when it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// Optimizer steps done.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
}

/// The right to train a run, held until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Claim {
    _lock: File,
}

/// The folder holds a run's config or events.
pub(crate) fn is_run(path: &Path) -> bool {
    path.join(EVENTS).is_file() || path.join(CONFIG).is_file()
}

impl RunFolder {
    /// Opens a run folder, wherever it lies. Nothing outside it is read, nothing is started.
    pub fn open(path: impl Into<PathBuf>) -> Result<RunFolder, RunlogError> {
        let path = path.into();
        match is_run(&path) {
            true => Ok(RunFolder { path }),
            false => Err(RunlogError::NotARun { path }),
        }
    }

    /// The folder's own name: the run's id.
    pub fn id(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// The config that the run was started with.
    pub fn config(&self) -> Result<RunConfig, RunlogError> {
        RunConfig::load(&self.path.join(CONFIG))
    }

    /// Writes the config: to a temporary file, synced, renamed.
    pub fn write_config(&self, config: &RunConfig) -> Result<(), RunlogError> {
        let (path, fresh) = (self.path.join(CONFIG), self.path.join("config.toml.new"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&fresh)?;
            file.write_all(config.to_toml().as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, &path)
        };
        write().map_err(RunlogError::disk("written", &path))
    }

    /// Where the events stand; the file need not exist yet.
    pub fn events_path(&self) -> PathBuf {
        self.path.join(EVENTS)
    }

    /// Where the checkpoints stand; the folder need not exist yet.
    pub fn checkpoints_path(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// The name of a step's checkpoint inside the run folder: `checkpoints/step-000400`.
    pub fn checkpoint_name(step: u64) -> String {
        format!("checkpoints/step-{step:06}")
    }

    /// All checkpoints that were renamed into place, by step.
    pub fn checkpoints(&self) -> Result<Vec<SavedCheckpoint>, RunlogError> {
        let folder = self.checkpoints_path();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(RunlogError::disk("read", &folder))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(RunlogError::disk("read", &folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let step = name.and_then(|name| name.strip_prefix("step-")?.parse().ok());
            if let Some(step) = step.filter(|_| path.is_dir()) {
                found.push(SavedCheckpoint { step, path });
            }
        }
        found.sort_by_key(|checkpoint| checkpoint.step);
        Ok(found)
    }

    /// Takes the right to train this run, or says which process has it.
    pub fn claim(&self) -> Result<Claim, RunlogError> {
        let path = self.path.join(LOCK);
        let failed = RunlogError::disk("locked", &path);
        let open = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path);
        let mut lock = match open {
            Ok(lock) => lock,
            Err(error) => return Err(failed(error)),
        };
        // Whoever asks `is_alive` holds a shared lock for an instant: a claim outlasts that.
        for _ in 0..20 {
            match lock.try_lock() {
                Ok(()) => {
                    let sign = |lock: &mut File| {
                        lock.set_len(0)?;
                        lock.rewind()?;
                        write!(lock, "{}", std::process::id())
                    };
                    sign(&mut lock).map_err(failed)?;
                    return Ok(Claim { _lock: lock });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
            }
        }
        let mut holder = String::new();
        let process = lock
            .read_to_string(&mut holder)
            .ok()
            .and_then(|_| holder.trim().parse().ok());
        Err(RunlogError::Busy {
            path: self.path.clone(),
            process,
        })
    }

    /// Some process, perhaps this one, trains the run now.
    pub fn is_alive(&self) -> bool {
        let Ok(lock) = File::open(self.path.join(LOCK)) else {
            return false;
        };
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// The run as its events tell it; ended early when nobody trains it and it has no last word.
    pub fn replay(&self) -> Result<Run, RunlogError> {
        // Asked first: a run that ends in between has then written its last word.
        let alive = self.is_alive();
        let mut run = Run::default();
        if self.events_path().exists() {
            read_events(&self.events_path())?
                .iter()
                .for_each(|event| run.apply(event));
        }
        if !alive {
            self.tell_end(&mut run);
        }
        Ok(run)
    }

    /// The caller saw that no process trains this run: without a last word it ended early, and its flight recorder says what
    /// happened then. Changes nothing otherwise.
    pub fn tell_end(&self, run: &mut Run) {
        if run.mark_process_gone()
            // A ring that cannot be read tells nothing; the end itself is told all the same.
            && let Ok(Some(aftermath)) = self.aftermath()
        {
            run.recall(aftermath);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = RunFolder {
            path: folder.path().into(),
        };
        (folder, run)
    }

    #[test]
    fn a_config_comes_back_as_it_was_written() {
        let (_folder, run) = folder();
        let config = RunConfig {
            seed: Some(7),
            learning_rate: Some(0.001),
            folder: Some("/data/my \"birds\"".into()),
            ..RunConfig::default()
        };
        run.write_config(&config).expect("it can be written");
        assert_eq!(run.config().map_err(|e| e.to_string()), Ok(config));
        assert!(!run.path.join("config.toml.new").exists());
    }

    #[test]
    fn checkpoints_are_sorted_by_step_and_unfinished_ones_left_out() {
        let (_folder, run) = folder();
        assert_eq!(run.checkpoints().ok(), Some(Vec::new()));
        for name in [
            "step-1000000",
            "step-000400",
            "step-000080",
            ".step-000500",
            "step-000600.new",
        ] {
            fs::create_dir_all(run.checkpoints_path().join(name)).expect("it can be made");
        }
        let steps: Vec<u64> = run
            .checkpoints()
            .expect("they can be read")
            .iter()
            .map(|c| c.step)
            .collect();
        assert_eq!(steps, [80, 400, 1_000_000]);
        assert_eq!(RunFolder::checkpoint_name(400), "checkpoints/step-000400");
    }

    #[test]
    fn two_never_train_the_same_run() {
        let (_folder, run) = folder();
        assert!(!run.is_alive());
        let claim = run.claim().expect("it is free");
        assert!(run.is_alive());
        let refused = run.claim().expect_err("it is taken").to_string();
        let process = format!("is being trained by process {}.", std::process::id());
        assert!(refused.contains(&process), "{refused}");
        drop(claim);
        assert!(!run.is_alive());
        run.claim().expect("it is free again");
    }

    #[test]
    fn a_claim_survives_being_looked_at() {
        let (_folder, run) = folder();
        drop(run.claim().expect("it is free"));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    run.is_alive();
                }
            });
            let refused = (0..300).filter(|_| run.claim().is_err()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0);
        });
    }

    #[test]
    fn only_a_run_folder_opens_as_one() {
        let (folder, _) = folder();
        let message = RunFolder::open(folder.path()).map_err(|e| e.to_string());
        assert!(message.is_err_and(|m| m.contains("is not a run folder")));
    }
}
