//! Settings as text by key, in the form in which the command line takes them.

use crate::RunlogError;
use crate::config_file::{Entries, checked};
use crate::settings::{Allowed, RunConfig, setting};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

impl RunConfig {
    /// This config with further settings. They replace those with the same key; `auto`, if the
    /// setting has it, removes one. Messages call the text `name`.
    ///
    /// # Errors
    /// The first key that is no setting, or whose text is not allowed.
    pub fn with_typed(
        self,
        typed: &BTreeMap<String, String>,
        name: &str,
    ) -> Result<RunConfig, RunlogError> {
        let mut entries = self.entries();
        for (key, text) in typed {
            let value = setting(key).and_then(|setting| setting.parse(text).ok());
            match value {
                Some(Value::Null) => drop(entries.remove(key)),
                // The check below refuses what could not be parsed.
                value => {
                    let value = value.unwrap_or_else(|| Value::from(text.as_str()));
                    entries.insert(key.clone(), value);
                }
            }
        }
        checked(Entries::without_lines(entries), name).map(|(config, _)| config)
    }

    /// Every setting of this config as the text that [`RunConfig::with_typed`] reads.
    pub fn typed(&self) -> BTreeMap<String, String> {
        let known = self.entries().into_iter();
        known
            .filter_map(|(key, value)| {
                let text = text(setting(&key)?.allowed, &value);
                Some((key, text))
            })
            .collect()
    }

    /// The keys that are set, with their values.
    fn entries(&self) -> Map<String, Value> {
        let written = serde_json::to_value(self).expect("every config can be written as JSON");
        written.as_object().cloned().unwrap_or_default()
    }
}

/// A value as it is typed: sizes with a unit if that is exact.
fn text(allowed: Allowed, value: &Value) -> String {
    if let (Allowed::Bytes(_), Some(bytes)) = (allowed, value.as_u64()) {
        let units = [(30, "GB"), (20, "MB")].into_iter();
        let exact = units
            .map(|(shift, unit)| (bytes >> shift, shift, unit))
            .find(|(amount, shift, _)| *amount > 0 && amount << shift == bytes);
        return exact.map_or(bytes.to_string(), |(amount, _, unit)| {
            format!("{amount}{unit}")
        });
    }
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
