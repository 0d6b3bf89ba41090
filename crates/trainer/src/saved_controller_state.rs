//! The memory controller's learned state inside a checkpoint: measured peaks and speeds, and the
//! environment they are valid for. A checkpoint is complete without it; the controller then
//! measures again.

use crate::plan::Plan;
use pressure::PersistedState;
use runlog::format_io_error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use tape::device::SelectedDevice;

/// The file inside a checkpoint folder.
pub const FILE: &str = "controller.json";
/// The name that earlier versions of Ebb gave it.
const OLD_FILE: &str = "pilot.json";
/// Most bytes of the file.
const MAX_BYTES: u64 = 16 << 20;
/// Version of its layout.
const VERSION: u64 = 1;

/// What peaks and speeds depend on beside the run's own config. Measurements from another
/// environment would mislead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    ebb: String,
    system: String,
    device: String,
    precision: String,
    threads: u32,
    /// CPU cores: the best available hint that the machine is another one.
    cores: usize,
}

impl Environment {
    /// The environment in which this plan runs now.
    pub fn new(plan: &Plan, chosen: &SelectedDevice) -> Self {
        Environment {
            ebb: env!("CARGO_PKG_VERSION").to_owned(),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            device: chosen.kind.to_string(),
            precision: plan.precision.name().to_owned(),
            threads: plan.threads,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
        }
    }
}

/// Contents of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateFile {
    version: u64,
    #[serde(alias = "on")]
    environment: Environment,
    #[serde(alias = "learnt")]
    learned: PersistedState,
}

impl StateFile {
    /// Contents that are valid in `environment`.
    pub fn new(environment: &Environment, learned: PersistedState) -> Self {
        StateFile {
            version: VERSION,
            environment: environment.clone(),
            learned,
        }
    }

    /// The learned state if it is valid in environment `here`.
    pub(crate) fn learned_in(&self, here: &Environment) -> Option<&PersistedState> {
        (self.environment == *here).then_some(&self.learned)
    }

    /// Writes the file into a checkpoint folder and syncs it.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(FILE);
        disk::write(&path, &serde_json::to_vec(self)?)?;
        disk::sync_path(&path)
    }
}

/// Path of the file in a checkpoint folder, under its old name if only that exists.
pub fn path_in(folder: &Path) -> PathBuf {
    let (new, old) = (folder.join(FILE), folder.join(OLD_FILE));
    if !new.exists() && old.exists() {
        old
    } else {
        new
    }
}

/// The controller state of a checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum SavedControllerState {
    /// The checkpoint was written without one.
    #[default]
    Absent,
    /// The state, and the environment that it is valid for.
    Present(Box<StateFile>),
    /// The state cannot be used. Holds the message for the user.
    Unreadable(String),
}

impl SavedControllerState {
    /// Reads the state from a checkpoint folder. `intact` tells whether the file has the checksum
    /// in the checkpoint; `None` if the checkpoint was written without a state.
    pub fn read(folder: &Path, intact: Option<bool>) -> SavedControllerState {
        let path = path_in(folder);
        let unreadable = |problem: String| {
            SavedControllerState::Unreadable(format!(
                "the memory controller measures again, because its saved state cannot be used: {}: {problem}",
                path.display()
            ))
        };
        match intact {
            None => return SavedControllerState::Absent,
            Some(false) => return unreadable("the file has changed since it was written".into()),
            Some(true) => {}
        }
        let json = disk::read_limited(&path, MAX_BYTES).map_err(|error| format_io_error(&error));
        let json = json.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string()));
        match json.and_then(parse) {
            Ok(file) => SavedControllerState::Present(Box::new(file)),
            Err(problem) => unreadable(problem),
        }
    }
}

fn parse(json: Value) -> Result<StateFile, String> {
    match json.get("version").and_then(Value::as_u64) {
        Some(VERSION) => serde_json::from_value(json).map_err(|error| error.to_string()),
        Some(other) => Err(format!(
            "the file has version {other}, but this version of Ebb reads version {VERSION}"
        )),
        None => Err("the file has no version".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn here() -> Environment {
        Environment {
            ebb: "1".into(),
            system: "a".into(),
            device: "cpu".into(),
            precision: "f32".into(),
            threads: 2,
            cores: 2,
        }
    }

    #[test]
    fn saved_state_is_valid_in_its_own_environment_only() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = StateFile::new(&here(), PersistedState::default());
        file.write(folder.path()).expect("it can be written");
        let saved = SavedControllerState::read(folder.path(), Some(true));
        assert_eq!(saved, SavedControllerState::Present(Box::new(file.clone())));
        assert!(file.learned_in(&here()).is_some());
        for other in [
            Environment {
                threads: 1,
                ..here()
            },
            Environment {
                precision: "bf16".into(),
                ..here()
            },
            Environment {
                device: "metal".into(),
                ..here()
            },
        ] {
            assert!(file.learned_in(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_file_with_the_old_name_and_keys_is_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = StateFile::new(&here(), PersistedState::default());
        let text = serde_json::to_string(&file).expect("it is JSON");
        let old = text
            .replace("\"environment\":", "\"on\":")
            .replace("\"learned\":", "\"learnt\":");
        assert_ne!(old, text);
        fs::write(folder.path().join(OLD_FILE), old).expect("it can be written");
        let saved = SavedControllerState::read(folder.path(), Some(true));
        assert_eq!(saved, SavedControllerState::Present(Box::new(file)));
    }

    #[test]
    fn an_unusable_state_names_its_problem() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let check = |text: Option<&str>, intact: Option<bool>, part: &str| {
            let path = folder.path().join(FILE);
            match text {
                Some(text) => fs::write(&path, text).expect("it can be written"),
                None => drop(fs::remove_file(&path)),
            }
            match SavedControllerState::read(folder.path(), intact) {
                SavedControllerState::Unreadable(message) => {
                    assert!(!part.is_empty() && message.contains(part), "{message}");
                }
                other => assert!(
                    part.is_empty() && other == SavedControllerState::Absent,
                    "{other:?}"
                ),
            }
        };
        check(None, None, "");
        check(Some("ignored"), None, "");
        check(Some("{}"), Some(false), "has changed since it was written");
        check(None, Some(true), "not found");
        check(Some("{}"), Some(true), "the file has no version");
        check(
            Some(r#"{"version":9,"tracks":{}}"#),
            Some(true),
            "the file has version 9, but this version of Ebb reads version 1",
        );
        check(
            Some(r#"{"version":1,"on":[]}"#),
            Some(true),
            "controller.json",
        );
        check(Some("{\"vers"), Some(true), "EOF");
    }
}
