//! A run's own copy of its pretrained weights: the files that Ebb reads, each with its length and
//! SHA-256, and what is known of their origin, written to a temporary folder and renamed when
//! complete. On file systems that clone files the copy takes no space.

use super::Pretrained;
use super::base_description::{BASE_FILE, BaseDescription};
use crate::error::{ModelError, Result, at};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Name of the copy in the run folder.
pub const RUN_COPY: &str = "published";
/// Name of the list of checksums in the copy.
const SUMS: &str = "sums.json";
/// Most bytes of this list.
const MAX_SUMS_BYTES: u64 = 1 << 20;

/// Length and checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Checksum {
    bytes: u64,
    sha256: String,
}

impl Checksum {
    fn from_file(path: &Path) -> std::io::Result<Self> {
        let (mut file, mut digest, mut bytes) = (File::open(path)?, Sha256::new(), 0);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                let sum = digest.finalize();
                return Ok(Checksum {
                    bytes,
                    sha256: sum.iter().map(|byte| format!("{byte:02x}")).collect(),
                });
            }
            digest.update(&buffer[..read]);
            bytes += read as u64;
        }
    }
}

impl Pretrained {
    /// Copies the weights into the folder of a run, and returns the copy.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn copy_into(&self, run: &Path) -> Result<Self> {
        let copy = run.join(RUN_COPY);
        let draft = disk::draft_path(&copy);
        let copied = self.copy_files(&draft).and_then(|()| {
            disk::sync_all_in(&draft).map_err(at(&draft))?;
            disk::rename(&draft, &copy).map_err(at(&copy))?;
            disk::sync_parent(&copy).map_err(at(&copy))
        });
        if let Err(error) = copied {
            // An incomplete copy is useless: free its disk space at once.
            let _ = disk::remove_dir_all(&draft);
            return Err(error);
        }
        self.in_folder(&copy)
    }

    /// Copies the files to a new folder, with their checksums.
    fn copy_files(&self, draft: &Path) -> Result<()> {
        disk::remove_drafts_of(&draft.with_file_name(RUN_COPY));
        disk::create_dir(draft).map_err(at(draft))?;
        let mut sums = BTreeMap::new();
        for name in self.folder.file_names() {
            let (from, to) = (self.path.join(&name), draft.join(&name));
            if let Some(parent) = to.parent() {
                disk::create_dir_all(parent).map_err(at(parent))?;
            }
            disk::copy(&from, &to).map_err(at(&from))?;
            sums.insert(name, Checksum::from_file(&to).map_err(at(&to))?);
        }
        let base = BaseDescription::read(&self.path);
        if !base.is_empty() {
            // Without a checksum: the run continues without this file.
            let path = draft.join(BASE_FILE);
            let text = serde_json::to_vec_pretty(&base).expect("a description is plain data");
            disk::write(&path, &text).map_err(at(&path))?;
        }
        let path = draft.join(SUMS);
        let text = serde_json::to_vec_pretty(&sums).expect("checksums are plain data");
        disk::write(&path, &text).map_err(at(&path))
    }
}

/// Checks the copy in the folder of a run against its checksums, and returns its path.
///
/// # Errors
/// A file is missing or not the one that was copied.
pub fn verify_run_copy(run: &Path) -> Result<PathBuf> {
    let folder = run.join(RUN_COPY);
    let damaged = |path: &Path, problem: String| {
        let reason = format!(
            "{problem}; the run cannot continue without its pretrained weights, so put the file back or start a new run"
        );
        ModelError::hub_folder(path, reason)
    };
    let path = folder.join(SUMS);
    let text = disk::read_limited(&path, MAX_SUMS_BYTES)
        .map_err(|error| damaged(&path, error.to_string()))?;
    let sums: BTreeMap<String, Checksum> =
        serde_json::from_slice(&text).map_err(|error| damaged(&path, error.to_string()))?;
    for (name, sum) in &sums {
        let path = folder.join(name);
        let mut parts = Path::new(name).components();
        if !parts.all(|part| matches!(part, Component::Normal(_))) || !path.is_file() {
            let problem = "the run's copy of the weights has no such file".to_owned();
            return Err(damaged(&path, problem));
        }
        match Checksum::from_file(&path) {
            Ok(found) if found == *sum => {}
            Ok(_) => {
                return Err(damaged(
                    &path,
                    "the file has changed since Ebb copied it".to_owned(),
                ));
            }
            Err(error) => return Err(damaged(&path, error.to_string())),
        }
    }
    Ok(folder)
}
