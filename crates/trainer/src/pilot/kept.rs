//! The pilot's knowledge in a checkpoint: what it has learnt, and what that holds for. A checkpoint without it, with one of
//! another version or with a damaged one is as good as any other: the pilot then begins uninformed.

use crate::plan::Plan;
use pressure::PersistedState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use tape::device::Chosen;

/// The file inside a checkpoint's folder.
pub const FILE: &str = "pilot.json";
/// Version of what stands in it.
const VERSION: u64 = 1;

/// What peaks and speeds depend on beside the run's own config. PersistedState on something else they would mislead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntOn {
    ebb: String,
    system: String,
    device: String,
    precision: String,
    threads: u32,
    /// Cores that the machine lends: another machine is told by them, as far as it can be.
    cores: usize,
}

impl LearntOn {
    /// What this plan is worked on.
    pub fn of(plan: &Plan, chosen: &Chosen) -> Self {
        LearntOn {
            ebb: env!("CARGO_PKG_VERSION").to_owned(),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            device: chosen.kind.to_owned(),
            precision: plan.precision.name().to_owned(),
            threads: plan.threads,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
        }
    }
}

/// What a pilot has learnt, and on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Knowledge {
    version: u64,
    on: LearntOn,
    learnt: PersistedState,
}

impl Knowledge {
    /// Puts a pilot's knowledge away.
    pub fn of(on: &LearntOn, learnt: PersistedState) -> Self {
        Knowledge {
            version: VERSION,
            on: on.clone(),
            learnt,
        }
    }

    /// What was learnt, where it holds.
    pub fn on(self, here: &LearntOn) -> Option<PersistedState> {
        (self.on == *here).then_some(self.learnt)
    }

    /// Writes it into a checkpoint's folder, synced.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(FILE);
        fs::write(&path, serde_json::to_vec(self)?)?;
        File::open(&path)?.sync_all()
    }
}

/// What a checkpoint holds of the pilot.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Kept {
    /// Nothing: it was written without.
    #[default]
    Nothing,
    /// What was written.
    Whole(Box<Knowledge>),
    /// Something that is of no use, and why.
    Unreadable(String),
}

impl Kept {
    /// Reads it from a checkpoint's folder. `intact` says whether the file is the one that was written; there is none where it
    /// was written without.
    pub fn read(folder: &Path, intact: Option<bool>) -> Kept {
        let unreadable = |what: String| {
            Kept::Unreadable(format!(
                "what the pilot knew cannot be used, it measures anew: {}: {what}",
                folder.join(FILE).display()
            ))
        };
        match intact {
            None => return Kept::Nothing,
            Some(false) => return unreadable("this is not the file that was written".into()),
            Some(true) => {}
        }
        let found = fs::read(folder.join(FILE)).map_err(|error| error.to_string());
        let found = found.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string()));
        match found.and_then(knowledge) {
            Ok(knowledge) => Kept::Whole(Box::new(knowledge)),
            Err(what) => unreadable(what),
        }
    }
}

fn knowledge(found: Value) -> Result<Knowledge, String> {
    match found.get("version").and_then(Value::as_u64) {
        Some(VERSION) => serde_json::from_value(found).map_err(|error| error.to_string()),
        Some(other) => Err(format!("its version is {other}, this Ebb reads {VERSION}")),
        None => Err("it has no version".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> LearntOn {
        LearntOn {
            ebb: "1".into(),
            system: "a".into(),
            device: "cpu".into(),
            precision: "f32".into(),
            threads: 2,
            cores: 2,
        }
    }

    #[test]
    fn it_comes_back_as_it_was_written_and_only_where_it_holds() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let knowledge = Knowledge::of(&here(), PersistedState::default());
        knowledge.write(folder.path()).expect("it can be written");
        let kept = Kept::read(folder.path(), Some(true));
        assert_eq!(kept, Kept::Whole(Box::new(knowledge.clone())));
        assert!(knowledge.clone().on(&here()).is_some());
        for other in [
            LearntOn {
                threads: 1,
                ..here()
            },
            LearntOn {
                precision: "bf16".into(),
                ..here()
            },
            LearntOn {
                device: "metal".into(),
                ..here()
            },
        ] {
            assert!(knowledge.clone().on(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn what_cannot_be_used_says_why_and_costs_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let check = |text: Option<&str>, intact: Option<bool>, part: &str| {
            let path = folder.path().join(FILE);
            match text {
                Some(text) => fs::write(&path, text).expect("it can be written"),
                None => drop(fs::remove_file(&path)),
            }
            match Kept::read(folder.path(), intact) {
                Kept::Unreadable(why) => assert!(!part.is_empty() && why.contains(part), "{why}"),
                other => assert!(part.is_empty() && other == Kept::Nothing, "{other:?}"),
            }
        };
        check(None, None, "");
        check(Some("of no matter"), None, "");
        check(Some("{}"), Some(false), "is not the file that was written");
        check(None, Some(true), "No such file");
        check(Some("{}"), Some(true), "it has no version");
        check(
            Some(r#"{"version":9,"tracks":{}}"#),
            Some(true),
            "its version is 9, this Ebb reads 1",
        );
        check(Some(r#"{"version":1,"on":[]}"#), Some(true), "pilot.json");
        check(Some("{\"vers"), Some(true), "EOF");
    }
}
