//! Reads a run config from TOML or JSON. Errors name the line.

use crate::settings_check::check;
use crate::{RunConfig, RunlogError};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toml::Spanned;

type Entries = (Map<String, Value>, BTreeMap<String, usize>);

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
        let text = fs::read_to_string(path).map_err(RunlogError::disk("read", path))?;
        let name = path.display().to_string();
        match path.extension().and_then(|end| end.to_str()) {
            Some("toml") => checked(from_toml(&text, &name)?, &name),
            Some("json") => checked(from_json(&text, &name)?, &name),
            _ => Err(RunlogError::ConfigFormat { path: path.into() }),
        }
    }

    /// Reads TOML text; messages call it `name`.
    pub fn from_toml(text: &str, name: &str) -> Result<RunConfig, RunlogError> {
        checked(from_toml(text, name)?, name).map(|(config, _)| config)
    }

    /// The config as TOML, without the keys that are absent.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every config has a form in TOML")
    }
}

fn checked((entries, lines): Entries, name: &str) -> Result<(RunConfig, Vec<String>), RunlogError> {
    let place = |key: &str| match lines.get(key) {
        Some(line) => format!("{name}, line {line}"),
        None => name.to_owned(),
    };
    let checked = check(entries, place)?;
    let config = serde_json::from_value(Value::Object(checked.entries));
    let config = config.map_err(|error| RunlogError::ConfigSyntax {
        place: name.to_owned(),
        reason: error.to_string(),
    })?;
    Ok((config, checked.notes))
}

fn from_toml(text: &str, name: &str) -> Result<Entries, RunlogError> {
    let table: BTreeMap<Spanned<String>, toml::Value> = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        RunlogError::ConfigSyntax {
            place: format!("{name}, line {line}"),
            reason: error.message().to_owned(),
        }
    })?;
    let (mut entries, mut lines) = (Map::new(), BTreeMap::new());
    for (key, value) in table {
        let line = line_at(text, key.span().start);
        let key = key.into_inner();
        lines.insert(key.clone(), line);
        // A number that is not finite becomes null, which no key allows.
        entries.insert(key, serde_json::to_value(value).unwrap_or(Value::Null));
    }
    Ok((entries, lines))
}

fn from_json(text: &str, name: &str) -> Result<Entries, RunlogError> {
    let syntax = |line: usize, reason: String| RunlogError::ConfigSyntax {
        place: format!("{name}, line {line}"),
        reason,
    };
    let value: Value =
        serde_json::from_str(text).map_err(|error| syntax(error.line(), error.to_string()))?;
    let Value::Object(mut entries) = value else {
        return Err(syntax(
            1,
            "a JSON config must be an object: keys and values in { }".into(),
        ));
    };
    // null is JSON's way to leave a key out.
    entries.retain(|_, value| !value.is_null());
    let line = |key: &String| json_line(text, key).map(|line| (key.clone(), line));
    let lines = entries.keys().filter_map(line).collect();
    Ok((entries, lines))
}

/// The line of a key in flat JSON. The JSON parser does not report it.
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
