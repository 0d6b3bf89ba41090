//! The first entry of a run archive: the id of the run, and path, length and SHA-256 of each file.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Name of the entry. No file of a run may have it.
pub const NAME: &str = "ebbrun-manifest.json";
/// Version of the archive.
pub const FORMAT: u32 = 1;
/// A longer manifest is not read.
pub const MAX_BYTES: u64 = 16 << 20;
/// A run has a few dozen files.
const MAX_FILES: usize = 50_000;
/// Longest path of a file. macOS opens no longer one.
const MAX_PATH_BYTES: usize = 1024;
/// Maximum length of a run's id. File names may be longer, so that a prefix or number can be added.
const MAX_ID_BYTES: usize = 200;
/// Levels of folders.
const MAX_DEPTH: usize = 8;
/// The lock of the process that trains the run.
const LOCK: &str = "lock";
/// Without one of them it is no run.
const RUN_FILES: [&str; 2] = ["config.toml", "events.jsonl"];

/// What an archive holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the archive.
    pub format: u32,
    /// Id of the run.
    pub run: String,
    /// Its files, in the order in which they follow.
    pub files: Vec<ArchivedFile>,
}

/// One file of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedFile {
    /// Path in the run folder, with `/`.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Parses a manifest and checks it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(json: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest = serde_json::from_slice(json)
            .map_err(|error| format!("its list of files (ebbrun-manifest.json) cannot be read ({error}); export the run again"))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Refuses what no export of Ebb contains: names that lead out of the folder, files that would
    /// replace each other, and too many of them.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!(
                "it has format {}, but this version of Ebb reads format {FORMAT}; use the version that exported it",
                self.format
            ));
        }
        // No list shows a draft, and the next import would remove it.
        let is_id = !self.run.contains('/') && is_plain(&self.run) && !disk::is_draft(&self.run);
        if self.run.len() > MAX_ID_BYTES || !is_id {
            return Err(format!("{:?} is not the name of a run", self.run));
        }
        if self.files.len() > MAX_FILES {
            return Err(format!("it lists more than {MAX_FILES} files"));
        }
        // macOS takes names that differ in case for the same file.
        let mut paths = HashSet::new();
        for file in &self.files {
            check_path(&file.path)?;
            if !paths.insert(file.path.to_lowercase()) {
                return Err(format!("{:?} is in it twice", file.path));
            }
        }
        let is_run = self
            .files
            .iter()
            .any(|file| RUN_FILES.contains(&file.path.as_str()));
        if !is_run {
            return Err("it contains no run: neither config.toml nor events.jsonl".to_owned());
        }
        Ok(())
    }

    /// Bytes of all files; the largest number if they do not fit into one.
    pub fn bytes(&self) -> u64 {
        let sizes = self.files.iter().map(|file| file.bytes);
        sizes.fold(0, u64::saturating_add)
    }
}

/// Whether this file belongs to a running process or is incomplete, so that no archive has it.
pub fn is_left_out(path: &str) -> bool {
    path == LOCK || path.split('/').any(disk::is_draft)
}

fn check_path(path: &str) -> Result<(), String> {
    // On macOS, a file `Lock` is the lock.
    let allowed = path.len() <= MAX_PATH_BYTES
        && path.split('/').count() <= MAX_DEPTH
        && path.split('/').all(is_plain)
        && path != NAME
        && !is_left_out(&path.to_lowercase());
    if allowed {
        Ok(())
    } else {
        Err(format!("{path:?} is not a file of a run folder"))
    }
}

/// Whether this is the name of one file or folder.
fn is_plain(name: &str) -> bool {
    let is_special = name.is_empty() || name == "." || name == "..";
    !is_special && !name.contains(|letter: char| letter == '\\' || letter.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(paths: &[&str]) -> Manifest {
        let file = |path: &&str| ArchivedFile {
            path: (*path).to_owned(),
            bytes: 1,
            sha256: String::new(),
        };
        Manifest {
            format: FORMAT,
            run: "2026-11-20-1402-birds".into(),
            files: paths.iter().map(file).collect(),
        }
    }

    #[test]
    fn paths_lead_into_the_run_folder() {
        let whole = [
            "config.toml",
            "checkpoints/step-000400/model.safetensors",
            "..x/Käfer.png",
        ];
        assert_eq!(manifest(&whole).check(), Ok(()));
        let deep = "a/".repeat(MAX_DEPTH) + "b";
        let long = "x".repeat(MAX_PATH_BYTES + 1);
        for path in [
            "",
            "/etc/passwd",
            "..",
            "../events.jsonl",
            "checkpoints/../../x",
            "checkpoints/./x",
            "checkpoints//x",
            "checkpoints/",
            "a\\b",
            "a\0b",
            "a\nb",
            "lock",
            "Lock",
            ".draft-config.toml.7",
            "checkpoints/.draft-step-000400.7/model.safetensors",
            NAME,
            deep.as_str(),
            long.as_str(),
        ] {
            let refused = manifest(&["config.toml", path]).check();
            let refused = refused.expect_err(path);
            assert!(
                refused.contains("is not a file of a run folder"),
                "{refused}"
            );
        }
    }

    #[test]
    fn names_that_mean_the_same_file_are_refused() {
        for twice in ["notes.json", "Notes.JSON"] {
            let refused = manifest(&["config.toml", "notes.json", twice]).check();
            assert!(refused.is_err_and(|problem| problem.contains("is in it twice")));
        }
    }

    #[test]
    fn ids_formats_and_archives_without_a_run_are_refused() {
        let check = |change: &dyn Fn(&mut Manifest), part: &str| {
            let mut changed = manifest(&["config.toml"]);
            change(&mut changed);
            let refused = changed.check().expect_err(part);
            assert!(refused.contains(part), "{refused}");
        };
        for id in ["", "..", "a/b", "a\\b", ".draft-birds.ebbrun.7"] {
            check(&|m| m.run = id.to_owned(), "is not the name of a run");
        }
        check(&|m| m.run = "x".repeat(300), "is not the name of a run");
        check(&|m| m.format = 2, "it has format 2");
        check(&|m| m.files.clear(), "it contains no run");
        let file = manifest(&["config.toml"]).files.remove(0);
        check(
            &|m| m.files = vec![file.clone(); MAX_FILES + 1],
            "more than 50000 files",
        );
        assert!(Manifest::parse(b"[").is_err_and(|problem| problem.contains("cannot be read")));
        let huge = ArchivedFile {
            bytes: u64::MAX,
            ..file
        };
        let sizes = Manifest {
            files: vec![huge.clone(), huge],
            ..manifest(&[])
        };
        assert_eq!(sizes.bytes(), u64::MAX);
    }
}
