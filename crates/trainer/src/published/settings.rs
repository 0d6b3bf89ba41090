//! The settings of a published folder's `config.json`, read one by one with the defaults that the format leaves out. Refuses
//! to know what a setting means.

use crate::error::{Result, TrainError};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Most bytes of a settings file that are read: real ones have a few thousand.
const MOST_BYTES: u64 = 16 << 20;

/// One file of settings.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    path: PathBuf,
    values: Value,
}

impl Settings {
    /// Reads `file` of a folder; `None` where there is no such file.
    pub fn read(folder: &Path, file: &str) -> Result<Option<Self>> {
        let path = folder.join(file);
        let refuse = |reason: String| refusal(&path, reason);
        let bytes = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refuse(error.to_string())),
        };
        if bytes > MOST_BYTES {
            return Err(refuse(format!(
                "it has {bytes} bytes, which no file of settings has; download it again"
            )));
        }
        let text = fs::read(&path).map_err(|error| refuse(error.to_string()))?;
        let values: Value = serde_json::from_slice(&text)
            .map_err(|error| refuse(format!("it is no JSON ({error}); download it again")))?;
        if !values.is_object() {
            return Err(refuse("it is no list of settings".to_owned()));
        }
        Ok(Some(Settings { path, values }))
    }

    /// All of them, as they were read.
    pub fn json(&self) -> &Value {
        &self.values
    }

    /// A setting by its name; `None` where it is left out or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// A count that the format may not leave out.
    pub fn count(&self, key: &str) -> Result<usize> {
        let value = self.get(key);
        value.map_or_else(
            || Err(self.refuse(format!("it does not say {key}"))),
            |value| self.as_count(key, value),
        )
    }

    /// A count, `default` where it is left out.
    pub fn count_or(&self, key: &str, default: usize) -> Result<usize> {
        self.get(key)
            .map_or(Ok(default), |value| self.as_count(key, value))
    }

    /// Several counts.
    pub fn counts(&self, key: &str, default: &[usize]) -> Result<Vec<usize>> {
        match self.get(key) {
            None => Ok(default.to_vec()),
            Some(Value::Array(values)) => values.iter().map(|v| self.as_count(key, v)).collect(),
            Some(other) => Err(self.refuse(format!("{key} = {other} is no list of counts"))),
        }
    }

    /// A positive number, `default` where it is left out.
    pub fn number_or(&self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        let number = value.as_f64().filter(|n| n.is_finite() && *n > 0.0);
        number.ok_or_else(|| self.refuse(format!("{key} = {value} is no number above 0")))
    }

    /// Whether a setting is on, `default` where it is left out.
    pub fn is_on(&self, key: &str, default: bool) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(default)
    }

    /// A word, `default` where it is left out.
    pub fn word<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or(default)
    }

    /// Refuses what Ebb's network cannot do: `key` must be one of `allowed`, the first of which is the default.
    pub fn expect_word(&self, key: &str, allowed: &[&str]) -> Result<()> {
        let found = self.word(key, allowed.first().copied().unwrap_or(""));
        if allowed.contains(&found) {
            return Ok(());
        }
        Err(self.refuse(format!(
            "{key} is {found:?}, and Ebb's network knows {}",
            allowed.join(", ")
        )))
    }

    /// Refuses what Ebb's network cannot do: `key` must be `needed`, which is also its default.
    pub fn expect_switch(&self, key: &str, needed: bool) -> Result<()> {
        if self.is_on(key, needed) == needed {
            return Ok(());
        }
        Err(self.refuse(format!(
            "{key} is {}, which Ebb's network cannot be",
            !needed
        )))
    }

    /// The class names in label order, by `id2label`; made up where it is left out, `None` where not even their number is said.
    pub fn classes(&self) -> Option<Vec<String>> {
        if let Some(names) = self.get("id2label").and_then(Value::as_object) {
            let name = |label: usize| {
                let name = names.get(&label.to_string()).and_then(Value::as_str);
                name.map_or_else(|| format!("LABEL_{label}"), str::to_owned)
            };
            return Some((0..names.len()).map(name).collect());
        }
        let count = self.get("num_labels").and_then(Value::as_u64)?;
        Some((0..count).map(|label| format!("LABEL_{label}")).collect())
    }

    /// An error about this file.
    pub fn refuse(&self, reason: String) -> TrainError {
        refusal(&self.path, reason)
    }

    fn as_count(&self, key: &str, value: &Value) -> Result<usize> {
        // A count larger than any network's is a damaged file, and must not be multiplied.
        let count = value.as_u64().filter(|n| (1..1 << 32).contains(n));
        let count = count.and_then(|n| usize::try_from(n).ok());
        count.ok_or_else(|| self.refuse(format!("{key} = {value} is no count")))
    }
}

/// An error about one file or folder of published weights.
pub(super) fn refusal(path: &Path, reason: String) -> TrainError {
    TrainError::UnsupportedWeights {
        path: path.to_owned(),
        reason,
    }
}
