//! The JSON that a hub sends: the commit of a repository, its files, and the parts of its weights.
//! Nothing in it is trusted.

use super::verify_checksum::{RemoteFile, Sum};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Most characters of a commit, which names a folder.
const MAX_COMMIT_CHARS: usize = 64;

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

/// The commit of a repository.
///
/// # Errors
/// The reason why the response has none.
pub fn commit(json: &[u8]) -> Result<String, String> {
    let Revision { sha } = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let is_commit = (1..=MAX_COMMIT_CHARS).contains(&sha.len())
        && sha.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_commit {
        Ok(sha)
    } else {
        Err(format!("{sha:?} is not a commit"))
    }
}

/// The files of a repository. Their paths are as the hub wrote them.
///
/// # Errors
/// The reason why the response is no list of files.
pub fn files(json: &[u8]) -> Result<Vec<RemoteFile>, String> {
    let entries: Vec<Entry> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
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
    Ok(listed.collect())
}

/// The names of the files that an index of weights lists.
///
/// # Errors
/// The reason why it is no index.
pub fn part_names(json: &[u8]) -> Result<BTreeSet<String>, String> {
    let index: Index = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let names = index.weight_map.values().filter_map(|value| value.as_str());
    Ok(names.map(str::to_owned).collect())
}
