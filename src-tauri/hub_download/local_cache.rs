//! Weights that other programs have downloaded, in the cache of the Hugging Face libraries:
//! `models--ORG--NAME/snapshots/COMMIT`, with the commit of the newest download in `refs/main`.

use super::hub_responses::part_names;
use super::listing::{CONFIG, INDEX, MAX_INDEX_BYTES, MODEL, TOKENIZER};
use dataset::Task;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use trainer::{PretrainedFamily, model_task};

/// Folder of the cache, and folder that contains it. The first one that is set counts.
const CACHE: &str = "HF_HUB_CACHE";
const HOME: &str = "HF_HOME";

/// Most bytes of `config.json`. Those of published models have a few thousand.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// Most bytes of a file with the name of a commit, which has forty.
const MAX_COMMIT_BYTES: u64 = 1 << 10;

/// The part of `config.json` that names the network.
#[derive(Deserialize)]
struct ModelConfig {
    model_type: String,
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

/// The names of all repositories of models in the cache of this user.
pub(super) fn names() -> Vec<String> {
    root().map_or_else(Vec::new, |root| names_in(&root))
}

fn names_in(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let name = |file: String| Some(file.strip_prefix("models--")?.replacen("--", "/", 1));
    let names = entries.filter_map(|entry| name(entry.file_name().into_string().ok()?));
    names.collect()
}

/// The network that the `config.json` in a folder names.
pub(super) fn model_type(folder: &Path) -> Option<String> {
    let config = ::disk::read_limited(&folder.join(CONFIG), MAX_CONFIG_BYTES).ok()?;
    let config = serde_json::from_slice::<ModelConfig>(&config).ok()?;
    Some(config.model_type)
}

/// What the cache of this user holds of a repository.
#[derive(Debug, PartialEq)]
pub(super) struct Snapshot {
    pub folder: PathBuf,
    /// Names of the files that Ebb needs and that are not there.
    pub missing: Vec<String>,
}

/// The newest snapshot of a repository in the cache of this user; `None` if there is none.
pub(super) fn snapshot(name: &str) -> Option<Snapshot> {
    cached(&root()?, name)
}

fn cached(root: &Path, name: &str) -> Option<Snapshot> {
    let place = root.join(format!("models--{}", name.replace('/', "--")));
    let commit = ::disk::read_text_limited(&place.join("refs/main"), MAX_COMMIT_BYTES).ok()?;
    let commit = commit.trim();
    let is_plain = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let folder = place.join("snapshots").join(commit);
    if !is_plain || !folder.is_dir() {
        return None;
    }
    let config = name_if_missing(&folder, CONFIG);
    let tokenizer = name_if_missing(&folder, TOKENIZER).filter(|_| reads_texts(&folder));
    let missing = config.into_iter().chain(missing_weights(&folder));
    let missing = missing.chain(tokenizer).collect();
    Some(Snapshot { folder, missing })
}

/// The name of the file if the folder does not have it.
fn name_if_missing(folder: &Path, name: &str) -> Option<String> {
    (!folder.join(name).is_file()).then(|| name.to_owned())
}

/// Whether the network in a folder reads texts, so that it needs a tokenizer.
fn reads_texts(folder: &Path) -> bool {
    let images = model_task(Task::ImageClassification);
    let mut of_texts = PretrainedFamily::all().filter(|family| family.task() != images);
    model_type(folder).is_some_and(|model_type| of_texts.any(|family| family.name() == model_type))
}

/// The files of weights that are missing. Weights in several files have an index.
fn missing_weights(folder: &Path) -> Vec<String> {
    let Some(model) = name_if_missing(folder, MODEL) else {
        return Vec::new();
    };
    let index = ::disk::read_limited(&folder.join(INDEX), MAX_INDEX_BYTES).ok();
    let parts = index.and_then(|text| part_names(&text).ok());
    match parts {
        Some(parts) if !parts.is_empty() => {
            let parts = parts.iter();
            parts
                .filter_map(|part| name_if_missing(folder, part))
                .collect()
        }
        _ => vec![model],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("it can be created");
        fs::write(path, text).expect("it can be written");
    }

    #[test]
    fn a_snapshot_names_the_files_that_it_lacks() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let place = root.path().join("models--org--bert-tiny");
        let folder = place.join("snapshots/abc123");
        let found = || cached(root.path(), "org/bert-tiny");
        let missing = || found().expect("there is a snapshot").missing;
        write(&folder.join("part-1.safetensors"), "");
        assert_eq!(found(), None, "no commit is named");
        write(&place.join("refs/main"), "abc123\n");
        assert_eq!(missing(), ["config.json", "model.safetensors"]);
        write(&folder.join("config.json"), "{}");
        assert_eq!(missing(), ["model.safetensors"]);
        let index = r#"{"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}}"#;
        write(&folder.join("model.safetensors.index.json"), index);
        assert_eq!(missing(), ["part-2.safetensors"]);
        write(&folder.join("part-2.safetensors"), "");
        let missing = Vec::new();
        assert_eq!(found(), Some(Snapshot { folder, missing }));
        assert_eq!(names_in(root.path()), ["org/bert-tiny"]);
        write(&place.join("refs/main"), "../../other");
        assert_eq!(found(), None, "a commit is no path");
    }

    #[test]
    fn only_a_network_that_reads_texts_needs_a_tokenizer() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let place = root.path().join("models--org--model");
        let folder = place.join("snapshots/abc123");
        write(&place.join("refs/main"), "abc123");
        write(&folder.join("model.safetensors"), "");
        let missing = |model_type: &str| {
            let config = format!(r#"{{"model_type": "{model_type}"}}"#);
            write(&folder.join("config.json"), &config);
            cached(root.path(), "org/model").map(|snapshot| snapshot.missing)
        };
        for (model_type, needs_it) in [("bert", true), ("gpt2", true), ("vit", false)] {
            let expected = needs_it.then(|| "tokenizer.json".to_owned());
            let expected = Some(expected.into_iter().collect::<Vec<_>>());
            assert_eq!(missing(model_type), expected, "{model_type}");
        }
        write(&folder.join("tokenizer.json"), "{}");
        assert_eq!(missing("bert"), Some(Vec::new()));
    }
}
