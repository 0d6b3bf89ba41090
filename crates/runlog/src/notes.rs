//! What a person noted about a run: another name, a text, and tags. It is a file of its own, so
//! that config and events stay as the training wrote them.

use crate::{RunFolder, RunlogError};
use format::format_bytes;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

const NOTES: &str = "notes.json";
/// Most bytes of this file.
const MAX_BYTES: u64 = 4 << 20;

/// Notes of a run. A run without notes has empty ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunNotes {
    /// The name to show instead of the dataset's; empty for the dataset's.
    pub name: String,
    /// Any text.
    pub text: String,
    /// Tags, in the order in which they were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl RunFolder {
    fn notes_path(&self) -> PathBuf {
        self.path.join(NOTES)
    }

    /// The notes of the run; empty if there are none or they are damaged.
    pub fn notes(&self) -> RunNotes {
        let json = disk::read_limited(&self.notes_path(), MAX_BYTES).unwrap_or_default();
        serde_json::from_slice(&json).unwrap_or_default()
    }

    /// Saves the notes. Empty notes leave no file.
    ///
    /// # Errors
    /// The notes are longer than Ebb reads, or those of the run already are and would be lost, or
    /// the file cannot be written.
    pub fn write_notes(&self, notes: &RunNotes) -> Result<(), RunlogError> {
        let path = self.notes_path();
        if fs::metadata(&path).is_ok_and(|found| found.len() > MAX_BYTES) {
            return Err(self.notes_not_saved(format!(
                "{} is larger than {}, so Ebb does not read it; shorten or move this file",
                path.display(),
                format_bytes(MAX_BYTES)
            )));
        }
        let json = serde_json::to_vec_pretty(notes).map_err(std::io::Error::from);
        let json = json.map_err(RunlogError::disk("written", &path))?;
        if json.len() as u64 > MAX_BYTES {
            return Err(self.notes_not_saved(format!(
                "the notes need {}, but Ebb reads at most {}; shorten them",
                format_bytes(json.len() as u64),
                format_bytes(MAX_BYTES)
            )));
        }
        let write = || -> std::io::Result<()> {
            if *notes != RunNotes::default() {
                return disk::write_atomic(&path, &json);
            }
            match disk::remove_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                removed => removed.and_then(|()| disk::sync_parent(&path)),
            }
        };
        write().map_err(RunlogError::disk("written", &path))
    }

    fn notes_not_saved(&self, problem: String) -> RunlogError {
        RunlogError::NotesNotSaved {
            run: self.id(),
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunStore;

    #[test]
    fn notes_are_kept_and_old_runs_have_none() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let folder = RunStore::open(home.path())
            .create("birds")
            .expect("it can be made");
        assert_eq!(folder.notes(), RunNotes::default());
        let notes = RunNotes {
            name: "Birds, larger".into(),
            text: "twice the image size #garden".into(),
            tags: vec!["garden".into(), "Final".into()],
        };
        folder.write_notes(&notes).expect("it can be written");
        assert_eq!(folder.notes(), notes);
        fs::write(
            folder.path.join(NOTES),
            "{\"name\": \"Later\", \"stars\": 5}",
        )
        .expect("it can be written");
        assert_eq!(folder.notes().name, "Later", "of a later version");
        fs::write(folder.path.join(NOTES), "{").expect("it can be written");
        assert_eq!(folder.notes(), RunNotes::default());
        folder
            .write_notes(&RunNotes::default())
            .expect("it can be removed");
        assert!(!folder.path.join(NOTES).exists());
    }
    #[test]
    fn notes_that_ebb_would_not_read_are_refused() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let folder = RunStore::open(home.path())
            .create("birds")
            .expect("it can be made");
        let with = |length: usize| RunNotes {
            text: "a".repeat(length),
            ..RunNotes::default()
        };
        let longest = with(MAX_BYTES as usize - 100);
        folder.write_notes(&longest).expect("Ebb reads them");
        assert_eq!(folder.notes(), longest);
        let refusal = |length: usize| {
            let written = folder.write_notes(&with(length));
            written.expect_err("too long").to_string()
        };
        let text = refusal(MAX_BYTES as usize);
        assert!(text.contains("shorten them"), "{text}");
        assert_eq!(folder.notes(), longest, "the earlier notes are kept");
        let path = folder.path.join(NOTES);
        let large = serde_json::to_vec(&with(MAX_BYTES as usize)).expect("notes are JSON");
        fs::write(&path, &large).expect("it can be written");
        let text = refusal(5);
        assert!(text.contains("shorten or move this file"), "{text}");
        assert_eq!(fs::read(&path).expect("it is there"), large);
    }
}
