//! Reads a run config from TOML or JSON. Errors name the line.

use crate::settings::setting;
use crate::settings_check::check;
use crate::{RunConfig, RunlogError};
use format::format_bytes;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use toml::Spanned;

/// Most bytes of a config file.
const MAX_BYTES: u64 = 4 << 20;

/// The entries of a config, by key.
pub(crate) struct Entries<'t> {
    pub values: Map<String, Value>,
    keys: KeyPlaces<'t>,
}

impl Entries<'_> {
    /// Entries that were not read from a file.
    pub fn without_lines(values: Map<String, Value>) -> Self {
        let keys = KeyPlaces::Unknown;
        Entries { values, keys }
    }
}

/// Where the keys of a config are. A line is counted when a message names it, because counting one
/// for each key of a large file takes minutes.
enum KeyPlaces<'t> {
    /// The config was not read from a file.
    Unknown,
    /// In TOML text, with the position of each key in bytes.
    Toml(&'t str, BTreeMap<String, usize>),
    /// In JSON text, whose parser does not report them.
    Json(&'t str),
}

impl KeyPlaces<'_> {
    /// The line of a key.
    fn line(&self, key: &str) -> Option<usize> {
        match self {
            KeyPlaces::Unknown => None,
            KeyPlaces::Toml(text, offsets) => Some(line_at(text, *offsets.get(key)?)),
            KeyPlaces::Json(text) => json_line(text, key),
        }
    }
}

impl RunConfig {
    /// Reads a `.toml` or `.json` file.
    ///
    /// # Errors
    /// The file cannot be read, or a key, type or value is wrong; the message names the line.
    pub fn load(path: &Path) -> Result<RunConfig, RunlogError> {
        RunConfig::load_with_notes(path).map(|(config, _)| config)
    }

    /// Reads a file like [`RunConfig::load`], with a sentence for each key that has another name
    /// today.
    pub fn load_with_notes(path: &Path) -> Result<(RunConfig, Vec<String>), RunlogError> {
        let text = disk::read_text_limited(path, MAX_BYTES);
        let text = text.map_err(RunlogError::disk("read", path))?;
        let name = path.display().to_string();
        match path.extension().and_then(|end| end.to_str()) {
            Some("toml") => checked(from_toml(&text, &name)?, &name),
            Some("json") => checked(from_json(&text, &name)?, &name),
            _ => Err(RunlogError::ConfigFormat { path: path.into() }),
        }
    }

    /// Reads a stream, such as standard input, with a sentence for each key that has another name
    /// today. Text that begins with `{` is JSON, and other text is TOML. Messages call it `name`.
    ///
    /// # Errors
    /// The stream cannot be read, is too long or is no text, or a key, type or value is wrong.
    pub fn read_with_notes(
        stream: impl Read,
        name: &str,
    ) -> Result<(RunConfig, Vec<String>), RunlogError> {
        let syntax = |reason: String| RunlogError::ConfigSyntax {
            place: name.to_owned(),
            reason,
        };
        let mut bytes = Vec::new();
        let read = stream.take(MAX_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(RunlogError::disk("read", name))?;
        if bytes.len() as u64 > MAX_BYTES {
            let most = format_bytes(MAX_BYTES);
            return Err(syntax(format!("the config is larger than {most}")));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| syntax("the config is not UTF-8 text".to_owned()))?;
        if text.trim_start().starts_with('{') {
            checked(from_json(&text, name)?, name)
        } else {
            checked(from_toml(&text, name)?, name)
        }
    }

    /// Reads TOML text; messages call it `name`.
    pub fn from_toml(text: &str, name: &str) -> Result<RunConfig, RunlogError> {
        checked(from_toml(text, name)?, name).map(|(config, _)| config)
    }

    /// Reads settings as they are typed: "epochs=3". Also returns a sentence for each key that has
    /// another name today.
    ///
    /// # Errors
    /// A text is no assignment, or its key or value is wrong.
    pub fn from_assignments<'t>(
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Result<(RunConfig, Vec<String>), RunlogError> {
        let mut entries = Map::new();
        for text in texts {
            let Some((key, typed)) = text.split_once('=') else {
                return Err(RunlogError::ConfigSyntax {
                    place: text.to_owned(),
                    reason: "a setting is written as KEY=VALUE".to_owned(),
                });
            };
            let value = match setting(key) {
                Some(setting) => {
                    setting
                        .parse(typed)
                        .map_err(|wrong| RunlogError::ConfigValue {
                            place: text.to_owned(),
                            key: key.to_owned(),
                            found: typed.to_owned(),
                            allowed: wrong.trim_start_matches("must be ").to_owned(),
                        })?
                }
                None => Value::from(typed),
            };
            entries.insert(key.to_owned(), value);
        }
        entries.retain(|_, value| !value.is_null());
        checked(Entries::without_lines(entries), "--set")
    }

    /// The config as TOML, without the keys that are absent.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every config can be written as TOML")
    }
}

/// The config of these entries, with a sentence for each key that has another name today. Messages
/// call the file `name`.
///
/// # Errors
/// The first key that is unknown, or has a value that is not allowed.
pub(crate) fn checked(
    entries: Entries<'_>,
    name: &str,
) -> Result<(RunConfig, Vec<String>), RunlogError> {
    let Entries { values, keys } = entries;
    let place = |key: &str| match keys.line(key) {
        Some(line) => format!("{name}, line {line}"),
        None => name.to_owned(),
    };
    let checked = check(values, place)?;
    let config = serde_json::from_value(Value::Object(checked.entries));
    let config = config.map_err(|error| RunlogError::ConfigSyntax {
        place: name.to_owned(),
        reason: error.to_string(),
    })?;
    Ok((config, checked.notes))
}

fn from_toml<'t>(text: &'t str, name: &str) -> Result<Entries<'t>, RunlogError> {
    let table: BTreeMap<Spanned<String>, toml::Value> = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        RunlogError::ConfigSyntax {
            place: format!("{name}, line {line}"),
            reason: error.message().to_owned(),
        }
    })?;
    let (mut values, mut offsets) = (Map::new(), BTreeMap::new());
    for (key, value) in table {
        let offset = key.span().start;
        let key = key.into_inner();
        offsets.insert(key.clone(), offset);
        // A number that is not finite becomes null, which no key allows.
        values.insert(key, serde_json::to_value(value).unwrap_or(Value::Null));
    }
    let keys = KeyPlaces::Toml(text, offsets);
    Ok(Entries { values, keys })
}

fn from_json<'t>(text: &'t str, name: &str) -> Result<Entries<'t>, RunlogError> {
    let syntax = |line: usize, reason: String| RunlogError::ConfigSyntax {
        place: format!("{name}, line {line}"),
        reason,
    };
    let value: Value =
        serde_json::from_str(text).map_err(|error| syntax(error.line(), error.to_string()))?;
    let Value::Object(mut values) = value else {
        return Err(syntax(
            1,
            "a JSON config must be an object: keys and values in { }".into(),
        ));
    };
    // null is JSON's way to leave a key out.
    values.retain(|_, value| !value.is_null());
    let keys = KeyPlaces::Json(text);
    Ok(Entries { values, keys })
}

/// The line of a key in flat JSON.
fn json_line(text: &str, key: &str) -> Option<usize> {
    let quoted = Value::from(key).to_string();
    let is_key = |&(at, _): &(usize, &str)| {
        let rest = &text[at + quoted.len()..];
        rest.trim_start().starts_with(':')
    };
    let (at, _) = text.match_indices(&quoted).find(is_key)?;
    Some(line_at(text, at))
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
