//! An index of the runs of a store, so that thousands of them are listed without reading the events
//! of each. It is a cache: without it, or if it is damaged or of another version of Ebb, the events
//! are read again.
//!
//! An entry is used as long as the event file of its run has the length and the time of its last
//! change that it had then. Runs that train now, and runs that cannot be read, are never in it.

use crate::RunlogError;
use crate::run_folder::RunFolder;
use crate::run_store::RunStore;
use crate::run_summary::RunSummary;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Version of the entries. Texts in them also change with the version of Ebb.
const FORMAT: u32 = 1;
/// A larger index is not read.
const MAX_BYTES: u64 = 256 << 20;

/// A run of a store.
#[derive(Debug)]
pub struct ListedRun {
    /// Its folder.
    pub folder: RunFolder,
    /// What the list shows of it, or why its events cannot be read.
    pub summary: Result<RunSummary, RunlogError>,
}

/// The state of an event file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    bytes: u64,
    /// Last change since 1970.
    seconds: u64,
    nanoseconds: u32,
}

impl FileState {
    /// The state of the run's event file; `None` if there is none.
    fn from_run(folder: &RunFolder) -> Option<FileState> {
        let about = fs::metadata(folder.events_path()).ok()?;
        let age = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        about.is_file().then_some(FileState {
            bytes: about.len(),
            seconds: age.as_secs(),
            nanoseconds: age.subsec_nanos(),
        })
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct IndexEntry {
    file: FileState,
    summary: RunSummary,
}

/// The entries by the id of their run.
type Entries = BTreeMap<String, IndexEntry>;

impl RunStore {
    /// The file of the index: `runs-index.json` beside the folder `runs`.
    pub fn index_path(&self) -> PathBuf {
        let mut name = self.root().file_name().unwrap_or_default().to_owned();
        name.push("-index.json");
        self.root().with_file_name(name)
    }

    /// Lists all runs with their summaries, newest first. The index is brought up to date, unless
    /// the disk refuses it.
    ///
    /// # Errors
    /// The folder of all runs cannot be read. A run that cannot be read does not hide others.
    pub fn summaries(&self) -> Result<Vec<ListedRun>, RunlogError> {
        let (folders, index) = (self.list()?, self.index_path());
        let (mut saved, mut entries) = (read(&index).unwrap_or_default(), Entries::new());
        let (mut listed, mut read_again) = (Vec::new(), 0);
        for folder in folders {
            let id = folder.id();
            // Asked first: a run that ends in between has written its last event by then.
            let may_index = !folder.is_alive();
            let file = FileState::from_run(&folder).filter(|_| may_index);
            let entry = saved.remove(&id).filter(|entry| Some(entry.file) == file);
            let summary = match entry {
                Some(entry) => {
                    let summary = entry.summary.clone();
                    entries.insert(id, entry);
                    Ok(summary)
                }
                None => {
                    let summary = folder.replay().map(|run| RunSummary::from_run(&run));
                    let entry = entry_if_final(&folder, file, summary.as_ref().ok());
                    if let Some(entry) = entry {
                        entries.insert(id, entry);
                        read_again += 1;
                    }
                    summary
                }
            };
            listed.push(ListedRun { folder, summary });
        }
        // Whatever is left in `saved` was removed, or trains again.
        if read_again > 0 || !saved.is_empty() {
            write(&index, &entries);
        }
        Ok(listed)
    }
}

/// The entry of a run that has ended, unless its events have changed since `file`.
fn entry_if_final(
    folder: &RunFolder,
    file: Option<FileState>,
    summary: Option<&RunSummary>,
) -> Option<IndexEntry> {
    let (file, summary) = (file?, summary?.clone());
    let is_final = summary.status.has_ended() && FileState::from_run(folder) == Some(file);
    let entry = IndexEntry { file, summary };
    // JSON has no number that is not finite: such a run is read each time.
    let json = serde_json::to_vec(&entry.summary).ok()?;
    let again: RunSummary = serde_json::from_slice(&json).ok()?;
    (is_final && again == entry.summary).then_some(entry)
}

/// The first line of an index with this content.
fn heading(content: &str) -> String {
    let sum = Sha256::digest(content.as_bytes());
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("index of runs {FORMAT} {} {sum}", env!("CARGO_PKG_VERSION"))
}

/// Reads an index; `None` if there is none, or if it is damaged or of another version.
fn read(path: &Path) -> Option<Entries> {
    let text = disk::read_text_limited(path, MAX_BYTES).ok()?;
    let (first, content) = text.split_once('\n')?;
    if first != heading(content) {
        return None;
    }
    serde_json::from_str(content).ok()
}

/// Writes an index if possible: without it the next list takes longer.
fn write(path: &Path, entries: &Entries) {
    if let Ok(content) = serde_json::to_string(entries) {
        let text = format!("{}\n{content}", heading(&content));
        disk::remove_drafts_of(path);
        let _ = disk::write_atomic(path, text.as_bytes());
    }
}
