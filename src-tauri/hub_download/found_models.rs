//! The models that are complete on this machine: those that Ebb downloaded, and those in the cache
//! of the Hugging Face libraries. Reads no weights.

use super::local_cache::{self, model_type};
use super::{DOWNLOAD_MARKER, Fetched, MAX_MARKER_BYTES};
use std::fs;
use std::path::{Path, PathBuf};

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundModel {
    /// `org/name`.
    pub name: String,
    pub folder: PathBuf,
    /// The network that its `config.json` names.
    pub model_type: String,
    /// Size of its files.
    pub bytes: u64,
    /// Whether Ebb downloaded it, rather than another program.
    pub is_own: bool,
}

/// All complete models below `home` and in the cache of other programs, by name. A model in both
/// places is listed once.
pub fn found_models(home: &Path) -> Vec<FoundModel> {
    let mut all = downloaded(home);
    for found in cached() {
        if !all.iter().any(|own| own.name == found.name) {
            all.push(found);
        }
    }
    all.sort_by_key(|found| found.name.to_lowercase());
    all
}

fn downloaded(home: &Path) -> Vec<FoundModel> {
    let names = folders(home).into_iter().flat_map(|org| folders(&org));
    let models = names.filter_map(|place| {
        let newest = folders(&place).into_iter().filter_map(|folder| {
            let marker = folder.join(DOWNLOAD_MARKER);
            let text = ::disk::read_limited(&marker, MAX_MARKER_BYTES).ok()?;
            let fetched: Fetched = serde_json::from_slice(&text).ok()?;
            let size = |path: &str| Some(fs::metadata(folder.join(path)).ok()?.len());
            let mut files = fetched.files.iter();
            let is_whole = files.all(|file| size(&file.path) == Some(file.size));
            let found = FoundModel {
                name: fetched.name,
                model_type: model_type(&folder)?,
                bytes: fetched.files.iter().map(|file| file.size).sum(),
                folder,
                is_own: true,
            };
            is_whole.then_some(found)
        });
        newest.max_by(|a, b| a.folder.cmp(&b.folder))
    });
    models.collect()
}

fn cached() -> Vec<FoundModel> {
    let names = local_cache::names().into_iter();
    let found = names.filter_map(|name| {
        let snapshot = local_cache::snapshot(&name)?;
        let is_whole = snapshot.missing.is_empty();
        let found = FoundModel {
            name,
            model_type: model_type(&snapshot.folder)?,
            bytes: size_of_files(&snapshot.folder),
            folder: snapshot.folder,
            is_own: false,
        };
        is_whole.then_some(found)
    });
    found.collect()
}

/// Size of the files of a snapshot, which may be links.
fn size_of_files(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let about = files.filter_map(|entry| fs::metadata(entry.path()).ok());
    about
        .filter(|about| about.is_file())
        .map(|about| about.len())
        .sum()
}

/// The folders in a folder; empty if it cannot be listed.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

#[cfg(all(feature = "desktop", test))]
mod tests {
    use super::*;
    use crate::hub_download::download;
    use crate::hub_download::test_hub::{COMMIT, Ignore, TestHub};

    #[test]
    fn a_downloaded_model_is_found_until_a_file_changes() {
        let hub = TestHub::open("vit");
        let home = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(downloaded(home.path()), []);
        let folder = download(hub.repository(), hub.access(), home.path(), COMMIT, &Ignore);
        let folder = folder.expect("it is downloaded");
        let found = FoundModel {
            name: "tiny/vit".to_owned(),
            model_type: "vit".to_owned(),
            bytes: hub.bytes(),
            folder: folder.clone(),
            is_own: true,
        };
        assert_eq!(downloaded(home.path()), [found]);
        let marker = fs::read(folder.join(DOWNLOAD_MARKER)).expect("it is complete");
        let fetched: Fetched = serde_json::from_slice(&marker).expect("it is JSON");
        assert_eq!(fetched.licence.as_deref(), Some("apache-2.0"));
        // tidy: not durable, a folder of a test
        fs::write(folder.join("model.safetensors"), "short").expect("it can be written");
        assert_eq!(downloaded(home.path()), []);
    }
}
