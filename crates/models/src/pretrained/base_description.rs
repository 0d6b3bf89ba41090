//! What is known of pretrained weights besides their values: their name at a hub and their licence.
//! A download writes both into its folder, and a run copies them, because its exports name them.
//! Nothing in these files is trusted.

use crate::hub_format::gguf_licence;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path};

/// File of a run's copy of the weights.
pub(super) const BASE_FILE: &str = "base.json";
/// File of a downloaded folder; `ebb` writes it.
const DOWNLOAD_FILE: &str = "fetched.json";
/// Most bytes of either file. That of a download also lists its files.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The model card of a repository.
const CARD: &str = "README.md";
/// Most bytes of a model card and of the text of a licence that are read.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Most characters of a licence or a name.
const MAX_CHARS: usize = 100;

/// The licences that texts of licences are recognized by: a part of the text in lower case, the
/// next part, and the identifier at the hub.
const LICENCE_TEXTS: [(&str, &str, &str); 4] = [
    ("apache license", "version 2.0", "apache-2.0"),
    ("mit license", "permission is hereby granted", "mit"),
    ("gnu general public license", "version 3", "gpl-3.0"),
    ("gemma terms of use", "", "gemma"),
];

/// What is known of pretrained weights.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseDescription {
    /// Their name at a hub: `org/name`.
    #[serde(default)]
    pub name: Option<String>,
    /// Their licence as the hub names it: `apache-2.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
}

impl BaseDescription {
    /// What a folder says about its weights. Looks into the file of a run's copy or of a download,
    /// then into the model card, then into a file with the licence; a GGUF file may name its
    /// licence itself.
    pub fn read(folder: &Path) -> Self {
        let stored = [BASE_FILE, DOWNLOAD_FILE]
            .iter()
            .find_map(|file| stored(&folder.join(file)))
            .unwrap_or_default();
        let found = || {
            let card = text_of(&folder.join(CARD));
            card.and_then(|card| licence_of_card(&card))
                .or_else(|| licence_of_files(folder))
                .or_else(|| gguf_licence(folder))
        };
        BaseDescription {
            name: stored
                .name
                .filter(|name| is_repository(name))
                .or_else(|| name_in_cache(folder)),
            licence: stored.licence.or_else(found).and_then(|text| plain(&text)),
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == BaseDescription::default()
    }
}

fn stored(path: &Path) -> Option<BaseDescription> {
    let text = disk::read_limited(path, MAX_FILE_BYTES).ok()?;
    serde_json::from_slice(&text).ok()
}

fn text_of(path: &Path) -> Option<String> {
    let bytes = disk::read_limited(path, MAX_TEXT_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text without control characters, shortened; `None` if nothing is left.
fn plain(text: &str) -> Option<String> {
    let shown = text.chars().filter(|c| !c.is_control()).take(MAX_CHARS);
    let shown: String = shown.collect();
    Some(shown.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Whether a text has the form `org/name`.
fn is_repository(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_plain)
    };
    let parts = name.split_once('/');
    name.len() <= MAX_CHARS && parts.is_some_and(|(org, name)| is_part(org) && is_part(name))
}

/// The name of a folder in the cache of the Hugging Face libraries,
/// `models--ORG--NAME/snapshots/COMMIT`.
fn name_in_cache(folder: &Path) -> Option<String> {
    let parts = folder.components().rev().map(|part| match part {
        Component::Normal(name) => name.to_str().unwrap_or_default(),
        _ => "",
    });
    let parts: Vec<&str> = parts.take(3).collect();
    let [_, "snapshots", cached] = parts.as_slice() else {
        return None;
    };
    let name = cached.strip_prefix("models--")?.replacen("--", "/", 1);
    Some(name).filter(|name| is_repository(name))
}

/// The licence in the front matter of a model card: the YAML between two lines `---` at its
/// beginning.
fn licence_of_card(card: &str) -> Option<String> {
    let card = card.trim_start_matches('\u{feff}');
    let mut lines = card.lines();
    if lines.next()?.trim_end() != "---" {
        return None;
    }
    let lines: Vec<&str> = lines.take_while(|line| line.trim_end() != "---").collect();
    // Values of other keys are indented or in a list.
    let value = |key: &str| {
        let is_key = |line: &&str| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(':'))
        };
        let at = lines.iter().position(is_key)?;
        let value = unquoted(lines[at].split_once(':')?.1);
        if !value.is_empty() {
            return Some(value);
        }
        // A repository may have several.
        let first = lines.get(at + 1)?.trim_start().strip_prefix("- ")?;
        Some(unquoted(first)).filter(|value| !value.is_empty())
    };
    let licence = value("license")?;
    if licence == "other" {
        return value("license_name").or(Some(licence));
    }
    Some(licence)
}

/// A scalar of YAML without its quotes and its comment; the first one of a list in brackets.
fn unquoted(value: &str) -> String {
    let value = value.trim().trim_start_matches('[').trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let value = match quote {
        Some(quote) => value[1..].split(quote).next(),
        None => value
            .split(" #")
            .next()
            .and_then(|it| it.split([',', ']']).next()),
    };
    value.unwrap_or_default().trim().to_owned()
}

/// The licence whose text is in the folder, in a file such as `LICENSE` or `LICENSE-MIT`.
fn licence_of_files(folder: &Path) -> Option<String> {
    let mut files = disk::list(folder).unwrap_or_default();
    files.sort();
    files.into_iter().find_map(|path| {
        let name = path.file_name()?.to_str()?.to_lowercase();
        let is_licence = ["license", "licence"].iter().any(|it| name.starts_with(it));
        if !is_licence || !path.is_file() {
            return None;
        }
        let text = text_of(&path)?.to_lowercase();
        let mut known = LICENCE_TEXTS.iter();
        let found = known.find(|(title, next, _)| text.contains(title) && text.contains(next));
        found.map(|(.., licence)| (*licence).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(files: &[(&str, &str)]) -> BaseDescription {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("it can be written");
        }
        BaseDescription::read(folder.path())
    }

    fn base(name: Option<&str>, licence: Option<&str>) -> BaseDescription {
        BaseDescription {
            name: name.map(str::to_owned),
            licence: licence.map(str::to_owned),
        }
    }

    #[test]
    fn the_licence_is_read_from_the_front_matter_of_a_model_card() {
        for (card, licence) in [
            (
                "---\nlicense: apache-2.0\n---\n# A model\n",
                Some("apache-2.0"),
            ),
            ("---\r\nlicense: mit # as before\r\n---\r\n", Some("mit")),
            ("---\nlicense: \"llama3.2\"\n---\n", Some("llama3.2")),
            ("---\nlicense:\n- mit\n- bsd\n---\n", Some("mit")),
            ("---\nlicense: [mit, bsd]\n---\n", Some("mit")),
            (
                "---\nlicense_name: qwen-research\nlicense: other\n---\n",
                Some("qwen-research"),
            ),
            ("---\nlicense: other\n---\n", Some("other")),
            ("---\ntags:\n  license: mit\n---\n", None),
            ("---\ntags: [a]\n---\nlicense: mit\n", None),
            ("license: mit\n", None),
            ("---\nlicense:\n---\n", None),
            ("", None),
        ] {
            assert_eq!(
                described(&[("README.md", card)]),
                base(None, licence),
                "{card}"
            );
        }
    }

    #[test]
    fn the_licence_is_recognized_by_its_text() {
        let apache = "Apache License\nVersion 2.0, January 2004\n";
        for (name, text, licence) in [
            ("LICENSE", apache, Some("apache-2.0")),
            (
                "LICENCE.txt",
                "MIT License\n\nPermission is hereby granted",
                Some("mit"),
            ),
            ("license-own.md", "All rights reserved.", None),
            ("COPYING.png", apache, None),
        ] {
            assert_eq!(described(&[(name, text)]), base(None, licence), "{name}");
        }
        // The model card says which one it is.
        let both = [
            ("LICENSE", apache),
            ("README.md", "---\nlicense: mit\n---\n"),
        ];
        assert_eq!(described(&both), base(None, Some("mit")));
    }

    #[test]
    fn a_download_and_a_copy_know_their_name() {
        let download = r#"{"name": "tiny/vit", "commit": "01", "files": [], "licence": "mit"}"#;
        let known = base(Some("tiny/vit"), Some("mit"));
        assert_eq!(described(&[("fetched.json", download)]), known);
        let copy = serde_json::to_string(&known).expect("it is plain data");
        assert_eq!(described(&[("base.json", &copy)]), known);
        // Earlier versions stored no licence.
        let earlier = r#"{"name": "tiny/vit", "commit": "01", "files": []}"#;
        assert_eq!(
            described(&[("fetched.json", earlier)]),
            base(Some("tiny/vit"), None)
        );
        let hostile = r#"{"name": "/home/ada/vit", "licence": "\u0007"}"#;
        assert!(described(&[("base.json", hostile)]).is_empty());
        assert!(described(&[("base.json", "{")]).is_empty());
    }

    #[test]
    fn a_folder_in_the_cache_of_other_programs_has_a_name() {
        let name = |path: &str| BaseDescription::read(Path::new(path)).name;
        assert_eq!(
            name("/cache/models--tiny--a--b/snapshots/0123").as_deref(),
            Some("tiny/a--b")
        );
        assert_eq!(name("/cache/models--tiny--a/0123"), None);
        assert_eq!(name("/models/tiny"), None);
        assert_eq!(name(""), None);
    }
}
