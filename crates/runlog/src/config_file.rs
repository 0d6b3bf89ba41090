//! Reads a run config from TOML or JSON. Errors name the line. Knows no key by name.

use crate::{RunConfig, RunlogError, keys};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toml::Spanned;

/// The entries of a config file and the line of each key.
struct Entries {
    values: Map<String, Value>,
    lines: BTreeMap<String, usize>,
}

impl RunConfig {
    /// Reads a `.toml` or `.json` file.
    ///
    /// # Errors
    /// Names the line of a syntax error, an unknown key, a wrong type or a value out of range.
    pub fn load(path: &Path) -> Result<RunConfig, RunlogError> {
        let text = fs::read_to_string(path).map_err(RunlogError::disk("read", path))?;
        let name = path.display().to_string();
        match path.extension().and_then(|end| end.to_str()) {
            Some("toml") => RunConfig::from_toml(&text, &name),
            Some("json") => parse_entries(from_json(&text, &name)?, &name),
            _ => Err(RunlogError::ConfigFormat { path: path.into() }),
        }
    }

    /// Parses TOML text. Error messages contain `name` as the name of the file.
    pub fn from_toml(text: &str, name: &str) -> Result<RunConfig, RunlogError> {
        parse_entries(from_toml(text, name)?, name)
    }

    /// Formats the config as TOML, without keys that are `None`.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a config is flat and its numbers are in range")
    }
}

fn parse_entries(entries: Entries, name: &str) -> Result<RunConfig, RunlogError> {
    let place = |key: &str| match entries.lines.get(key) {
        Some(line) => format!("{name}, line {line}"),
        None => name.to_owned(),
    };
    let values = keys::check(entries.values, place)?;
    serde_json::from_value(Value::Object(values)).map_err(|error| RunlogError::ConfigSyntax {
        place: name.to_owned(),
        reason: error.to_string(),
    })
}

fn from_toml(text: &str, name: &str) -> Result<Entries, RunlogError> {
    let table: BTreeMap<Spanned<String>, toml::Value> = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        RunlogError::ConfigSyntax {
            place: format!("{name}, line {line}"),
            reason: error.message().to_owned(),
        }
    })?;
    let (mut values, mut lines) = (Map::new(), BTreeMap::new());
    for (key, value) in table {
        let line = line_at(text, key.span().start);
        let key = key.into_inner();
        lines.insert(key.clone(), line);
        // A number that is not finite becomes null, which is not valid for any key.
        values.insert(key, serde_json::to_value(value).unwrap_or(Value::Null));
    }
    Ok(Entries { values, lines })
}

fn from_json(text: &str, name: &str) -> Result<Entries, RunlogError> {
    let syntax = |line: usize, reason: String| RunlogError::ConfigSyntax {
        place: format!("{name}, line {line}"),
        reason,
    };
    let value: Value =
        serde_json::from_str(text).map_err(|error| syntax(error.line(), error.to_string()))?;
    let Value::Object(mut values) = value else {
        return Err(syntax(1, "a config is a table of keys in { }".into()));
    };
    // In JSON, null is equivalent to leaving the key out.
    values.retain(|_, value| !value.is_null());
    let line = |key: &String| json_line(text, key).map(|line| (key.clone(), line));
    let lines = values.keys().filter_map(line).collect();
    Ok(Entries { values, lines })
}

/// Finds the line of a key in flat JSON; the JSON parser does not report positions.
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
