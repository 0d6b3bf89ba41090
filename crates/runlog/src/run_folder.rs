//! One run folder: `config.toml`, `events.jsonl`, `checkpoints/step-000400`, and the lock of the
//! process that trains the run.

use crate::{RunConfig, RunlogError};
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const CONFIG: &str = "config.toml";
const EVENTS: &str = "events.jsonl";
const LOCK: &str = "lock";

/// The folder of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    /// Path of the folder.
    pub path: PathBuf,
}

/// A checkpoint in a run folder. Its content is verified when it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// Completed optimizer steps.
    pub step: u64,
    /// Path of its folder.
    pub path: PathBuf,
}

/// The exclusive right to train a run. It ends when this value is dropped or the process exits.
#[derive(Debug)]
pub struct Claim {
    _lock: File,
}

/// True if the folder contains a run's config or events.
pub(crate) fn is_run_folder(path: &Path) -> bool {
    path.join(EVENTS).is_file() || path.join(CONFIG).is_file()
}

impl RunFolder {
    /// Opens a run folder anywhere on the disk. Nothing is read yet.
    ///
    /// # Errors
    /// If the folder contains neither a config nor events.
    pub fn open(path: impl Into<PathBuf>) -> Result<RunFolder, RunlogError> {
        let path = path.into();
        if is_run_folder(&path) {
            Ok(RunFolder { path })
        } else {
            Err(RunlogError::NotARun { path })
        }
    }

    /// The id of the run: the name of its folder.
    pub fn id(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Loads the config that the run was started with.
    pub fn config(&self) -> Result<RunConfig, RunlogError> {
        RunConfig::load(&self.path.join(CONFIG))
    }

    /// Writes the config, completely or not at all.
    pub fn write_config(&self, config: &RunConfig) -> Result<(), RunlogError> {
        let path = self.path.join(CONFIG);
        disk::write_atomic(&path, config.to_toml().as_bytes())
            .map_err(RunlogError::disk("written", &path))
    }

    /// Path of the event file. The file need not exist yet.
    pub fn events_path(&self) -> PathBuf {
        self.path.join(EVENTS)
    }

    /// Path of the folder of all checkpoints. The folder need not exist yet.
    pub fn checkpoints_path(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Path of a step's checkpoint inside the run folder: `checkpoints/step-000400`.
    pub fn checkpoint_name(step: u64) -> String {
        format!("checkpoints/step-{step:06}")
    }

    /// All complete checkpoints, sorted by step.
    pub fn checkpoints(&self) -> Result<Vec<SavedCheckpoint>, RunlogError> {
        let folder = self.checkpoints_path();
        let paths = match disk::list(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            paths => paths.map_err(RunlogError::disk("read", &folder))?,
        };
        let mut found = Vec::new();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str());
            let step = name.and_then(|name| name.strip_prefix("step-")?.parse().ok());
            if let Some(step) = step.filter(|_| path.is_dir()) {
                found.push(SavedCheckpoint { step, path });
            }
        }
        found.sort_by_key(|checkpoint| checkpoint.step);
        Ok(found)
    }

    /// Takes the exclusive right to train this run.
    ///
    /// # Errors
    /// [`RunlogError::Busy`] with the id of the other process if another process trains it. The
    /// lock is a link.
    pub fn claim(&self) -> Result<Claim, RunlogError> {
        let path = self.path.join(LOCK);
        let failed = RunlogError::disk("locked", &path);
        // Somebody who shares the folder may have put a link here, and claiming writes.
        let mut lock = match disk::open_without_links(&path) {
            Ok(lock) => lock,
            Err(error) => return Err(failed(error)),
        };
        // `is_alive` holds a shared lock for an instant; retrying for 200 ms outlasts it.
        for _ in 0..20 {
            match lock.try_lock() {
                Ok(()) => {
                    let write_process_id = |lock: &mut File| {
                        lock.set_len(0)?;
                        lock.rewind()?;
                        write!(lock, "{}", std::process::id())
                    };
                    // The id only names the process to others; a full disk has no space for it.
                    let _ = write_process_id(&mut lock);
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

    /// True if a process trains the run now. It may be this process.
    pub fn is_alive(&self) -> bool {
        let Ok(lock) = disk::read_without_links(&self.path.join(LOCK)) else {
            return false;
        };
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = RunFolder {
            path: folder.path().into(),
        };
        (folder, run)
    }

    #[test]
    fn a_config_round_trips() {
        let (_folder, run) = folder();
        let config = RunConfig {
            seed: Some(7),
            learning_rate: Some(0.001),
            folder: Some("/data/my \"birds\"".into()),
            ..RunConfig::default()
        };
        run.write_config(&config).expect("it can be written");
        assert_eq!(run.config().map_err(|e| e.to_string()), Ok(config));
        assert_eq!(fs::read_dir(&run.path).map(Iterator::count).ok(), Some(1));
    }

    #[test]
    fn incomplete_checkpoints_are_not_listed() {
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
    fn a_run_is_trained_by_one_process_at_a_time() {
        let (_folder, run) = folder();
        assert!(!run.is_alive());
        let claim = run.claim().expect("it is free");
        assert!(run.is_alive());
        let refused = run.claim().expect_err("it is taken").to_string();
        let process = format!("is being trained by process {};", std::process::id());
        assert!(refused.contains(&process), "{refused}");
        drop(claim);
        assert!(!run.is_alive());
        run.claim().expect("it is free again");
    }

    #[test]
    fn a_link_in_place_of_the_lock_or_the_events_is_not_followed() {
        for name in [LOCK, EVENTS] {
            let (_folder, run) = folder();
            let target = tempfile::NamedTempFile::new().expect("a temporary file");
            fs::write(target.path(), "alias ll='ls -l'").expect("it can be written");
            let link = run.path.join(name);
            std::os::unix::fs::symlink(target.path(), link).expect("it can be linked");
            assert!(!run.is_alive());
            let refused = if name == LOCK {
                run.claim().map(|_| ())
            } else {
                crate::EventWriter::append(&run).map(|_| ())
            };
            let refused = refused.expect_err("it is a link").to_string();
            assert!(
                refused.contains("it is a link to another file"),
                "{refused}"
            );
            let left = fs::read_to_string(target.path()).expect("it is there");
            assert_eq!(left, "alias ll='ls -l'");
        }
    }

    #[test]
    fn a_claim_succeeds_while_others_ask_is_alive() {
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
    fn only_a_run_folder_can_be_opened() {
        let (folder, _) = folder();
        let message = RunFolder::open(folder.path()).map_err(|e| e.to_string());
        assert!(message.is_err_and(|m| m.contains("is not a run folder")));
    }
}
