//! The JSON files of a folder of pretrained weights, read key by key with the defaults of the
//! format.

use crate::error::{ModelError, Result};
use crate::transformer::Gelu;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Largest JSON file that is read, in bytes; real ones have a few thousand.
const MAX_BYTES: u64 = 16 << 20;

/// A JSON object, with the path it came from for errors.
#[derive(Debug, Clone)]
pub(crate) struct JsonConfig {
    path: PathBuf,
    values: Value,
}

impl JsonConfig {
    /// Reads `file` of a folder; `None` if it does not exist.
    pub fn read(folder: &Path, file: &str) -> Result<Option<Self>> {
        let path = folder.join(file);
        let refuse = |reason: String| ModelError::hub_folder(&path, reason);
        let text = match disk::read_limited(&path, MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refuse(error.to_string())),
        };
        let values: Value = serde_json::from_slice(&text).map_err(|error| {
            refuse(format!(
                "the file is not valid JSON ({error}); download the file again"
            ))
        })?;
        if !values.is_object() {
            return Err(refuse("it is not a JSON object".to_owned()));
        }
        Ok(Some(JsonConfig { path, values }))
    }

    /// A config that does not come from a file.
    pub fn from_values(values: Value) -> Self {
        JsonConfig {
            path: PathBuf::from("config.json"),
            values,
        }
    }

    /// The whole object.
    pub fn json(&self) -> &Value {
        &self.values
    }

    /// The value of `key`; `None` if it is absent or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// A required count.
    pub fn count(&self, key: &str) -> Result<usize> {
        let value = self.get(key);
        value.map_or_else(
            || Err(self.refuse(format!("the file has no {key}"))),
            |value| self.as_count(key, value),
        )
    }

    /// A count, `default` if it is absent.
    pub fn count_or(&self, key: &str, default: usize) -> Result<usize> {
        self.get(key)
            .map_or(Ok(default), |value| self.as_count(key, value))
    }

    /// A list of counts, `default` if it is absent.
    pub fn counts(&self, key: &str, default: &[usize]) -> Result<Vec<usize>> {
        match self.get(key) {
            None => Ok(default.to_vec()),
            Some(Value::Array(values)) => values.iter().map(|v| self.as_count(key, v)).collect(),
            Some(other) => Err(self.refuse(format!(
                "{key} = {other} is not a list of positive whole numbers"
            ))),
        }
    }

    /// A positive number, `default` if it is absent.
    pub fn positive_or(&self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        let number = value.as_f64().filter(|n| n.is_finite() && *n > 0.0);
        number.ok_or_else(|| self.refuse(format!("{key} = {value} is not a number above 0")))
    }

    /// A boolean, `default` if it is absent or something else.
    pub fn bool_or(&self, key: &str, default: bool) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(default)
    }

    /// A string, `default` if it is absent or something else.
    pub fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or(default)
    }

    /// Fails unless `key` is one of `allowed`, the first of which is the default.
    pub fn expect_text(&self, key: &str, allowed: &[&str]) -> Result<()> {
        let found = self.text(key, allowed.first().copied().unwrap_or(""));
        if allowed.contains(&found) {
            return Ok(());
        }
        Err(self.refuse(format!(
            "{key} is {found:?}, but Ebb supports only {}",
            allowed.join(", ")
        )))
    }

    /// Fails unless `key` is `needed`, which is also the default.
    pub fn expect_bool(&self, key: &str, needed: bool) -> Result<()> {
        if self.bool_or(key, needed) == needed {
            return Ok(());
        }
        Err(self.refuse(format!("{key} is {}, which Ebb does not support", !needed)))
    }

    /// The class names of `id2label` in label order. Missing names are `LABEL_0`, `LABEL_1`, …;
    /// `None` if even the number of classes is absent.
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

    /// The number of attention heads under `key`, which must divide `width`.
    pub fn heads(&self, key: &str, width: usize) -> Result<usize> {
        let heads = self.count_or(key, 12)?;
        if width.is_multiple_of(heads) {
            return Ok(heads);
        }
        Err(self.refuse(format!(
            "the width {width} is not divisible by the number of heads, {heads}"
        )))
    }

    /// The form of GELU under `key`.
    pub fn gelu(&self, key: &str, default: &str) -> Result<Gelu> {
        match self.text(key, default) {
            "gelu" | "gelu_python" => Ok(Gelu::Erf),
            "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Gelu::Tanh),
            other => Err(self.refuse(format!(
                "{key} is {other:?}, but Ebb supports only gelu, gelu_new, gelu_fast and gelu_pytorch_tanh"
            ))),
        }
    }

    /// An error about this file.
    pub fn refuse(&self, reason: String) -> ModelError {
        ModelError::hub_folder(&self.path, reason)
    }

    fn as_count(&self, key: &str, value: &Value) -> Result<usize> {
        // No network has such a count; multiplying it could overflow.
        let count = value.as_u64().filter(|n| (1..1 << 32).contains(n));
        let count = count.and_then(|n| usize::try_from(n).ok());
        count.ok_or_else(|| self.refuse(format!("{key} = {value} is not a positive whole number")))
    }
}
