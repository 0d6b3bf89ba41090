//! What a repository holds, by the hub's own list: which of its files Ebb needs, how large they
//! are, and the sums that they are checked by. Large files have a sha256, small ones git's own sum.

use super::fetch::Hub;
use super::{HubError, disk};
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

const MODEL: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Taken along where they are there.
const SMALL: [&str; 4] = [
    "preprocessor_config.json",
    "tokenizer.json",
    "1_Pooling/config.json",
    INDEX,
];
/// Endings of weights that are programs: reading one runs it.
const PICKLED: [&str; 5] = [".bin", ".pt", ".pth", ".pkl", ".ckpt"];

/// One file of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Where it lies in the repository.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// What it is checked by.
    pub sum: Sum,
}

/// What a file is checked by, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sum {
    /// Of its bytes.
    Sha256(String),
    /// Git's: sha1 of `blob`, its size, a zero and its bytes.
    Git(String),
}

/// A repository at one commit.
pub struct Listing {
    /// Which.
    pub commit: String,
    files: Vec<Listed>,
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
    /// The hub does not answer, knows no such model, or answers something else.
    pub fn ask(hub: &Hub) -> Result<Self, HubError> {
        let Revision { sha } = hub.json("revision/main")?;
        if sha.is_empty() || !sha.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(hub.no_hub(format!("{sha:?} is no commit")));
        }
        let entries: Vec<Entry> = hub.json(&format!("tree/{sha}?recursive=true"))?;
        let files = entries.into_iter().filter(|entry| entry.kind == "file");
        let listed = files.map(|entry| match entry.lfs {
            Some(large) => Listed {
                path: entry.path,
                size: large.size,
                sum: Sum::Sha256(large.oid),
            },
            None => Listed {
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

    /// The files that are needed, but for parts of the weights that an index names.
    ///
    /// # Errors
    /// It has no settings, or no weights but pickled ones.
    pub fn wanted(&self, name: &str) -> Result<Vec<Listed>, HubError> {
        let unfit = |reason: String| HubError::Unfit {
            name: name.to_owned(),
            reason,
        };
        let none = "there is no config.json in it; choose a model that transformers opens";
        let config = self
            .file("config.json")
            .ok_or_else(|| unfit(none.to_owned()))?;
        let model = self.file(MODEL);
        if model.is_none() && self.file(INDEX).is_none() {
            let pickled = self.files.iter().map(|file| file.path.as_str());
            let pickled = pickled.filter(|path| PICKLED.iter().any(|end| path.ends_with(end)));
            return Err(unfit(match pickled.collect::<Vec<_>>().as_slice() {
                [] => format!("there is no {MODEL} in it; choose a model that has one"),
                some => format!(
                    "its weights are only there as pickled files ({}), and reading one runs a program; choose a model with {MODEL}",
                    some.join(", ")
                ),
            }));
        }
        let whole = model.is_some();
        let small = SMALL.into_iter().filter(|path| *path != INDEX || !whole);
        let small = small.filter_map(|path| self.file(path));
        Ok([config].into_iter().chain(small).chain(model).collect())
    }

    /// Parts of the weights, where they come in parts: what the index in `folder` names.
    ///
    /// # Errors
    /// The index names what the repository does not have.
    pub fn parts(&self, name: &str, folder: &Path) -> Result<Vec<Listed>, HubError> {
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
            .map_err(|error| unfit(format!("its {INDEX} is no index ({error})")))?;
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
                    "its {INDEX} names {file}, which is not beside it; ask its author"
                ))
            })
        });
        each.collect()
    }

    fn file(&self, path: &str) -> Option<Listed> {
        self.files.iter().find(|file| file.path == path).cloned()
    }
}

impl Listed {
    /// Checks what lies at `path`: its size, and its sum.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn fits(&self, path: &Path) -> Result<(), String> {
        let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
        if size != self.size {
            return Err(format!(
                "it has {size} bytes, and {} were published",
                self.size
            ));
        }
        let (found, published) = match &self.sum {
            Sum::Sha256(sum) => (summed(Sha256::new(), path), sum),
            Sum::Git(sum) => {
                let head = format!("blob {size}\0");
                (summed(Sha1::new_with_prefix(head), path), sum)
            }
        };
        let found = found.map_err(|error| error.to_string())?;
        match found == published.to_ascii_lowercase() {
            true => Ok(()),
            false => Err(format!("its sum is {found}, and {published} was published")),
        }
    }
}

/// The sum of a file, in hexadecimal digits.
fn summed<D: Digest>(mut sum: D, path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => sum.update(&buffer[..read]),
        }
    }
    let digits = sum.finalize();
    Ok(digits.iter().map(|byte| format!("{byte:02x}")).collect())
}
