//! The run's own copy of the published folder that it began with: the files that are read of it, each with its length and
//! sha256, written beside the run and renamed when it is whole. Where the file system clones files the copy takes no room.
//!
//! Refuses to know what is in the files.

use super::Origin;
use crate::error::{Result, TrainError, at};
use runlog::{RunConfig, RunFolder};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The copy, in the run folder.
const FOLDER: &str = "published";
/// Lengths and sums, in the copy.
const SUMS: &str = "sums.json";

/// What a file has to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sum {
    bytes: u64,
    sha256: String,
}

impl Sum {
    fn of(path: &Path) -> std::io::Result<Self> {
        let (mut file, mut digest, mut bytes) = (File::open(path)?, Sha256::new(), 0);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                let sum = digest.finalize();
                return Ok(Sum {
                    bytes,
                    sha256: sum.iter().map(|byte| format!("{byte:02x}")).collect(),
                });
            }
            digest.update(&buffer[..read]);
            bytes += read as u64;
        }
    }
}

impl Origin {
    /// The same weights, kept in the run folder from now on.
    ///
    /// # Errors
    /// A file cannot be read or written, or the copy is not what was copied.
    pub(crate) fn keep(&self, run: &RunFolder) -> Result<Self> {
        let whole = run.path.join(FOLDER);
        let draft = run
            .path
            .join(format!(".draft-{FOLDER}.{}", std::process::id()));
        let _ = fs::remove_dir_all(&draft);
        fs::create_dir_all(&draft).map_err(at(&draft))?;
        let mut sums = BTreeMap::new();
        for name in self.folder.file_names() {
            let (from, to) = (self.path.join(&name), draft.join(&name));
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent).map_err(at(parent))?;
            }
            fs::copy(&from, &to).map_err(at(&from))?;
            File::open(&to)
                .and_then(|file| file.sync_all())
                .map_err(at(&to))?;
            sums.insert(name, Sum::of(&to).map_err(at(&to))?);
        }
        let path = draft.join(SUMS);
        let text = serde_json::to_vec_pretty(&sums).expect("sums are plain data");
        fs::write(&path, text).map_err(at(&path))?;
        File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(at(&path))?;
        fs::rename(&draft, &whole).map_err(at(&whole))?;
        Origin::opened(&whole, self.tuning)
    }
}

/// The config of a run, which finds its published weights in the run itself, checked.
///
/// # Errors
/// The run has no config; a file of its published weights is missing or not the one that was kept.
pub fn config_of(run: &RunFolder) -> Result<RunConfig> {
    let config = run.config()?;
    if config.from.is_none() {
        return Ok(config);
    }
    let folder = run.path.join(FOLDER);
    let damaged = |path: &Path, what: String| TrainError::UnsupportedWeights {
        path: path.to_owned(),
        reason: format!("{what}; the run cannot go on without the weights that it began with"),
    };
    let path = folder.join(SUMS);
    let text = fs::read(&path).map_err(|error| damaged(&path, error.to_string()))?;
    let sums: BTreeMap<String, Sum> =
        serde_json::from_slice(&text).map_err(|error| damaged(&path, error.to_string()))?;
    for (name, sum) in &sums {
        let path = folder.join(name);
        match Sum::of(&path) {
            Ok(found) if found == *sum => {}
            Ok(_) => {
                return Err(damaged(
                    &path,
                    "it is not the file that was kept".to_owned(),
                ));
            }
            Err(error) => return Err(damaged(&path, error.to_string())),
        }
    }
    Ok(RunConfig {
        from: Some(folder),
        ..config
    })
}
