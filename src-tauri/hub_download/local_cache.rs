//! Weights that other programs have downloaded, in the cache of the Hugging Face libraries:
//! `models--ORG--NAME/snapshots/COMMIT`, with the commit of the newest download in `refs/main`.

use super::listing::MAX_INDEX_BYTES;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the cache, and folder that contains it. The first one that is set counts.
const CACHE: &str = "HF_HUB_CACHE";
const HOME: &str = "HF_HOME";

/// The index of weights in several files.
#[derive(Deserialize)]
struct WeightIndex {
    /// File of each tensor.
    weight_map: BTreeMap<String, String>,
}

/// The cache of this user.
fn root() -> Option<PathBuf> {
    let variable = |name: &str| {
        let path = std::env::var_os(name).filter(|path| !path.is_empty());
        path.map(PathBuf::from)
    };
    let home = || Some(variable(HOME)?.join("hub"));
    let usual = || Some(variable("HOME")?.join(".cache/huggingface/hub"));
    variable(CACHE).or_else(home).or_else(usual)
}

/// The folder of a repository in the cache of this user; `None` if it is not complete there.
pub(super) fn folder(name: &str) -> Option<PathBuf> {
    cached(&root()?, name)
}

fn cached(root: &Path, name: &str) -> Option<PathBuf> {
    let place = root.join(format!("models--{}", name.replace('/', "--")));
    let commit = fs::read_to_string(place.join("refs/main")).ok()?;
    let commit = commit.trim();
    let is_plain = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let folder = place.join("snapshots").join(commit);
    let is_complete = is_plain && folder.join("config.json").is_file() && has_weights(&folder);
    is_complete.then_some(folder)
}

fn has_weights(folder: &Path) -> bool {
    if folder.join("model.safetensors").is_file() {
        return true;
    }
    let index = folder.join("model.safetensors.index.json");
    let index = ::disk::read_limited(&index, MAX_INDEX_BYTES).ok();
    let index = index.and_then(|text| serde_json::from_slice::<WeightIndex>(&text).ok());
    index.is_some_and(|index| {
        let mut files = index.weight_map.values();
        !index.weight_map.is_empty() && files.all(|file| folder.join(file).is_file())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_found_if_it_is_complete() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let place = root.path().join("models--org--bert-tiny");
        let snapshot = place.join("snapshots/abc123");
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be created");
            fs::write(path, text).expect("it can be written");
        };
        let found = || cached(root.path(), "org/bert-tiny");
        write(snapshot.join("config.json"), "{}");
        write(snapshot.join("part-1.safetensors"), "");
        assert_eq!(found(), None, "no commit is named");
        write(place.join("refs/main"), "abc123\n");
        assert_eq!(found(), None, "there are no weights");
        let index = r#"{"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}}"#;
        write(snapshot.join("model.safetensors.index.json"), index);
        assert_eq!(found(), None, "a file is missing");
        write(snapshot.join("part-2.safetensors"), "");
        assert_eq!(found(), Some(snapshot));
        write(place.join("refs/main"), "../../other");
        assert_eq!(found(), None, "a commit is no path");
    }
}
