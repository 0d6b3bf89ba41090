//! A home folder for the runs of one test, and its contents.

use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Complete events in the folder of a run; none before the run has begun.
pub fn events_in(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines.collect()
}

/// `EBB_HOME` of one test.
pub struct Home(TempDir);

impl Home {
    /// An empty home.
    pub fn new() -> Home {
        Home(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A run's folder.
    pub fn run(&self, id: &str) -> PathBuf {
        self.path().join("runs").join(id)
    }

    /// Names of the complete checkpoints of a run.
    pub fn checkpoints(&self, id: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.run(id).join("checkpoints"))
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| {
                name.strip_prefix("step-")
                    .is_some_and(|step| step.parse::<u64>().is_ok())
            })
            .collect()
    }

    /// Complete events of a run.
    pub fn events(&self, id: &str) -> Vec<Value> {
        events_in(&self.run(id))
    }

    /// The newest step of a run; 0 before the first.
    pub fn step(&self, id: &str) -> u64 {
        let events = self.events(id);
        let step = events.iter().rev().find(|event| event["kind"] == "step");
        step.and_then(|event| event["step"].as_u64())
            .unwrap_or_default()
    }
}
