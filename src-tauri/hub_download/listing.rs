//! The files of a repository at a hub, and which of them Ebb needs.

use super::fetch::Hub;
use super::remote_file::{RemoteFile, Sum};
use super::{HubError, disk};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const MODEL: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Downloaded if they exist.
const SMALL: [&str; 4] = [
    "preprocessor_config.json",
    "tokenizer.json",
    "1_Pooling/config.json",
    INDEX,
];
/// Extensions of pickled weights. Reading such a file runs the program in it.
const PICKLED: [&str; 5] = [".bin", ".pt", ".pth", ".pkl", ".ckpt"];

/// A repository at one commit.
pub struct Listing {
    pub commit: String,
    files: Vec<RemoteFile>,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    oid: String,
    #[serde(default)]
    size: u64,
    lfs: Option<Large>,
}

#[derive(Deserialize)]
struct Large {
    oid: String,
    size: u64,
}

#[derive(Deserialize)]
struct Index {
    weight_map: serde_json::Map<String, serde_json::Value>,
}

impl Listing {
    /// Asks a hub for the newest commit of a repository and its files.
    ///
    /// # Errors
    /// The hub does not answer, has no such model, or its response is invalid.
    pub fn ask(hub: &Hub) -> Result<Self, HubError> {
        let Revision { sha } = hub.json("revision/main")?;
        if sha.is_empty() || !sha.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(hub.no_hub(format!("{sha:?} is not a commit")));
        }
        let entries: Vec<Entry> = hub.json(&format!("tree/{sha}?recursive=true"))?;
        let files = entries.into_iter().filter(|entry| entry.kind == "file");
        let listed = files.map(|entry| match entry.lfs {
            Some(large) => RemoteFile {
                path: entry.path,
                size: large.size,
                sum: Sum::Sha256(large.oid),
            },
            None => RemoteFile {
                path: entry.path,
                size: entry.size,
                sum: Sum::Git(entry.oid),
            },
        });
        Ok(Listing {
            commit: sha,
            files: listed.collect(),
        })
    }

    /// The files that are needed, except parts of the weights that an index names.
    ///
    /// # Errors
    /// The repository has no config.json, or only pickled weights.
    pub fn wanted(&self, name: &str) -> Result<Vec<RemoteFile>, HubError> {
        let unfit = |reason: String| HubError::Unfit {
            name: name.to_owned(),
            reason,
        };
        let none = "it has no config.json; choose a model that transformers can open";
        let config = self
            .file("config.json")
            .ok_or_else(|| unfit(none.to_owned()))?;
        let model = self.file(MODEL);
        if model.is_none() && self.file(INDEX).is_none() {
            let pickled = self.files.iter().map(|file| file.path.as_str());
            let pickled = pickled.filter(|path| PICKLED.iter().any(|end| path.ends_with(end)));
            return Err(unfit(match pickled.collect::<Vec<_>>().as_slice() {
                [] => format!("it has no file {MODEL}; choose a model with this file"),
                some => format!(
                    "it has only pickled weights ({}), and reading them could run any program; choose a model with {MODEL}",
                    some.join(", ")
                ),
            }));
        }
        let whole = model.is_some();
        let small = SMALL.into_iter().filter(|path| *path != INDEX || !whole);
        let small = small.filter_map(|path| self.file(path));
        Ok([config].into_iter().chain(small).chain(model).collect())
    }

    /// The parts of the weights that the index in `folder` names; empty if the weights are in one
    /// file.
    ///
    /// # Errors
    /// The index names a file that the repository does not have.
    pub fn parts(&self, name: &str, folder: &Path) -> Result<Vec<RemoteFile>, HubError> {
        if self.file(MODEL).is_some() {
            return Ok(Vec::new());
        }
        let path = folder.join(INDEX);
        let text = fs::read(&path).map_err(disk(&path))?;
        let unfit = |reason: String| HubError::Unfit {
            name: name.to_owned(),
            reason,
        };
        let index: Index = serde_json::from_slice(&text)
            .map_err(|error| unfit(format!("its file {INDEX} is damaged ({error})")))?;
        let names: BTreeSet<&str> = index
            .weight_map
            .values()
            .filter_map(|v| v.as_str())
            .collect();
        let part = |part: &str| match part.contains(['/', '\\']) {
            true => None,
            false => self.file(part),
        };
        let each = names.into_iter().map(|file| {
            part(file).ok_or_else(|| {
                unfit(format!(
                    "its file {INDEX} names {file}, but the repository has no such file; choose another model"
                ))
            })
        });
        each.collect()
    }

    fn file(&self, path: &str) -> Option<RemoteFile> {
        self.files.iter().find(|file| file.path == path).cloned()
    }
}
