//! The JSON that a hub sends: the commit of a repository, its files, and the parts of its weights.
//! Nothing in it is trusted.

use super::verify_checksum::{RemoteFile, Sum};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// Most characters of a commit, which names a folder.
const MAX_COMMIT_CHARS: usize = 64;
/// Most characters of a licence that are shown.
const MAX_LICENCE_CHARS: usize = 60;

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
    weight_map: PartNames,
}

/// The different files of an object that names the file of each tensor. Millions of tensors are
/// read without being kept.
struct PartNames(BTreeSet<String>);

impl<'de> Deserialize<'de> for PartNames {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(PartNamesVisitor).map(PartNames)
    }
}

struct PartNamesVisitor;

impl<'de> Visitor<'de> for PartNamesVisitor {
    type Value = BTreeSet<String>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object that names the file of each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((IgnoredAny, file)) = map.next_entry::<IgnoredAny, Value>()? {
            if let Value::String(file) = file {
                names.insert(file);
            }
        }
        Ok(names)
    }
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

/// The licence of a repository: "apache-2.0", or the name that the repository gives to its own one.
/// `None` if it names none.
pub fn licence(json: &[u8]) -> Option<String> {
    let about: Value = serde_json::from_slice(json).ok()?;
    let card = &about["cardData"];
    let named = match card["license"].as_str() {
        Some("other") => card["license_name"].as_str().or(Some("other")),
        Some(licence) => Some(licence),
        // A repository may have several.
        None => card["license"][0].as_str(),
    };
    let tags = about["tags"].as_array().into_iter().flatten();
    let tagged = || {
        tags.filter_map(Value::as_str)
            .find_map(|tag| tag.strip_prefix("license:"))
    };
    let shown = |text: &str| {
        let plain = text.chars().filter(|c| !c.is_control());
        plain.take(MAX_LICENCE_CHARS).collect::<String>()
    };
    let licence = named.or_else(tagged).map(shown);
    licence.filter(|licence| !licence.trim().is_empty())
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
    Ok(index.weight_map.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_named_as_the_repository_names_it() {
        for (json, licence) in [
            (
                r#"{"cardData": {"license": "apache-2.0"}}"#,
                Some("apache-2.0"),
            ),
            (r#"{"cardData": {"license": ["mit", "bsd"]}}"#, Some("mit")),
            (
                r#"{"cardData": {"license": "other", "license_name": "qwen-research"}}"#,
                Some("qwen-research"),
            ),
            (r#"{"cardData": {"license": "other"}}"#, Some("other")),
            (
                r#"{"tags": ["vision", "license:llama3.2"]}"#,
                Some("llama3.2"),
            ),
            (r#"{"cardData": {"license": 7}, "tags": 7}"#, None),
            (r#"{"cardData": {"license": "\n"}}"#, None),
            ("[]", None),
            ("no json", None),
        ] {
            assert_eq!(licence_of(json).as_deref(), licence, "{json}");
        }
        let long = format!(r#"{{"tags": ["license:{}"]}}"#, "a".repeat(1000));
        assert_eq!(licence_of(&long).map(|text| text.len()), Some(60));
    }

    fn licence_of(json: &str) -> Option<String> {
        licence(json.as_bytes())
    }
}
