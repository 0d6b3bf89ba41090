//! Checks the entries of a config against the table of settings, and translates keys of earlier
//! versions.

use crate::amounts::{format_bytes, nearest, parse_bytes};
use crate::settings::{Allowed, EXACT, RunConfig, SETTINGS, Setting, setting};
use crate::{CheckpointBlocks, CheckpointInterval, Quantize, RunlogError, TrainableLayers};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The one key that is no setting: values by the machine's memory.
const TIERS: &str = "by_memory";

/// The checked entries of a config under today's keys.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Key and value, as the config holds them.
    pub entries: Map<String, Value>,
    /// Sentences about keys that have another name today.
    pub notes: Vec<String>,
}

impl Allowed {
    /// "a whole number from 16 to 1024", as the end of "must be …".
    pub fn describe(&self) -> String {
        match self {
            Allowed::Path => "a path in quotes".into(),
            Allowed::Name => "a name in quotes".into(),
            Allowed::Words([one]) => format!("`{one}`"),
            Allowed::Words(words) => format!("one of `{}`", words.join("`, `")),
            Allowed::Integer(least, EXACT) => format!("a whole number of at least {least}"),
            Allowed::Integer(least, most) => format!("a whole number from {least} to {most}"),
            Allowed::Number(least, most) => format!("a number from {least} to {most}"),
            Allowed::Blocks => "a number of blocks, or `all`".into(),
            Allowed::TrainedPart => "`head`, `all`, or `last:N` such as `last:2`".into(),
            Allowed::Bits => "8, `nf4` or 4".into(),
            Allowed::Interval => {
                "an interval such as `10min`, `2epochs` or `500steps`, or `auto`".into()
            }
            Allowed::Bytes(least) => format!(
                "a size of at least {}, such as \"8GB\" or a number of bytes",
                format_bytes(*least)
            ),
        }
    }

    /// The value as the config holds it, or `None` if it is not allowed.
    fn accept(&self, value: &Value) -> Option<Value> {
        let fits = match self {
            Allowed::Path | Allowed::Name => value.is_string(),
            Allowed::Words(words) => value.as_str().is_some_and(|v| words.contains(&v)),
            Allowed::Integer(least, most) => {
                value.as_u64().is_some_and(|v| (least..=most).contains(&&v))
            }
            Allowed::Number(least, most) => {
                value.as_f64().is_some_and(|v| (least..=most).contains(&&v))
            }
            Allowed::Blocks => is_read::<CheckpointBlocks>(value),
            Allowed::TrainedPart => is_read::<TrainableLayers>(value),
            Allowed::Bits => is_read::<Quantize>(value),
            Allowed::Interval => is_read::<CheckpointInterval>(value),
            Allowed::Bytes(least) => {
                let bytes = match value {
                    Value::String(text) => parse_bytes(text).ok()?,
                    number => number.as_u64()?,
                };
                return (bytes >= *least).then(|| Value::from(bytes));
            }
        };
        fits.then(|| value.clone())
    }
}

/// Whether the value can be read as a `T`.
fn is_read<T: DeserializeOwned>(value: &Value) -> bool {
    serde_json::from_value::<T>(value.clone()).is_ok()
}

impl RunConfig {
    /// Refuses the first value that is out of its range.
    ///
    /// # Errors
    /// The key, its value, and what would be allowed.
    pub fn validate(&self) -> Result<(), RunlogError> {
        let written = serde_json::to_value(self).expect("every config can be written as JSON");
        let entries = written.as_object().cloned().unwrap_or_default();
        check(entries, |_| "the run config".into()).map(drop)
    }
}

impl Setting {
    /// Reads a value as it is typed on the command line. `auto`, if the setting has it, is `Null`:
    /// not set.
    ///
    /// # Errors
    /// What would be allowed, as the end of a sentence.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        if text == "auto" && self.value.starts_with("auto|") {
            return Ok(Value::Null);
        }
        let number = text.parse::<u64>().map(Value::from);
        let number = number.or_else(|_| text.parse::<f64>().map(Value::from));
        let value = match self.allowed {
            Allowed::Integer(..) | Allowed::Number(..) | Allowed::Blocks | Allowed::Bits => {
                number.ok()
            }
            _ => None,
        };
        let value = value.unwrap_or_else(|| Value::from(text));
        let accepted = self.allowed.accept(&value);
        accepted.ok_or_else(|| format!("must be {}", self.allowed.describe()))
    }
}

/// Checks each entry. `place` says where a key is: "run.toml, line 3".
///
/// # Errors
/// The first key that is unknown or has a value that is not allowed.
pub(crate) fn check(
    entries: Map<String, Value>,
    place: impl Fn(&str) -> String,
) -> Result<Checked, RunlogError> {
    let mut checked = Checked::default();
    for (key, value) in entries {
        let refused = |allowed: String| RunlogError::ConfigValue {
            place: place(&key),
            key: key.clone(),
            found: found(&value, &key),
            allowed,
        };
        if key == TIERS {
            let tiers = value
                .as_array()
                .map(|tiers| tiers.iter().map(tier).collect());
            let tiers = tiers.flatten().ok_or_else(|| refused(tier_help()))?;
            checked.entries.insert(key, tiers);
            continue;
        }
        let Some(setting) = setting(&key) else {
            return Err(RunlogError::UnknownKey {
                place: place(&key),
                hint: hint(&key),
                key,
            });
        };
        let accepted = setting.allowed.accept(&value);
        let accepted = accepted.ok_or_else(|| refused(setting.allowed.describe()))?;
        if setting.old_keys.contains(&key.as_str()) {
            let (place, now) = (place(&key), setting.key);
            checked
                .notes
                .push(format!("{place}: `{key}` is now called `{now}`"));
        }
        if checked
            .entries
            .insert(setting.key.to_owned(), accepted)
            .is_some()
        {
            return Err(RunlogError::ConfigSyntax {
                place: place(&key),
                reason: format!(
                    "`{}` is set twice, under two of its names; remove one",
                    setting.key
                ),
            });
        }
    }
    Ok(checked)
}

fn tier_help() -> String {
    "a list of tables, each with `at_least` (a memory size) and with `effective_batch` or `first_micro_batch`".into()
}

/// One table of `by_memory` as the config holds it.
fn tier(value: &Value) -> Option<Value> {
    let accept = |(key, value): (&String, &Value)| {
        let allowed = match key.as_str() {
            "at_least" => Allowed::Bytes(1),
            "effective_batch" | "first_micro_batch" => Allowed::Integer(1, 65_536),
            _ => return None,
        };
        Some((key.clone(), allowed.accept(value)?))
    };
    let table = value.as_object()?;
    let accepted: Map<String, Value> = table.iter().map(accept).collect::<Option<_>>()?;
    accepted
        .contains_key("at_least")
        .then_some(Value::Object(accepted))
}

fn hint(key: &str) -> String {
    let known = SETTINGS.iter().map(|setting| setting.key).chain([TIERS]);
    match nearest(key, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// A value as a message shows it; a number of bytes also with its unit.
fn found(value: &Value, key: &str) -> String {
    let is_size = setting(key).is_some_and(|known| matches!(known.allowed, Allowed::Bytes(_)));
    if let (true, Some(bytes)) = (is_size, value.as_u64()) {
        return format!("{bytes} ({})", format_bytes(bytes));
    }
    match value {
        Value::Null => "not a number".into(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a table".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(entries: Value) -> Result<Checked, String> {
        let entries = entries.as_object().cloned().unwrap_or_default();
        check(entries, |_| "here".into()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_renamed_key_is_read_and_names_its_successor() {
        let read = checked(json!({"politeness": 0.8})).expect("it is still read");
        assert_eq!(read.entries["max_system_fraction"], 0.8);
        assert_eq!(
            read.notes,
            ["here: `politeness` is now called `max_system_fraction`"]
        );
        let twice = checked(json!({"politeness": 0.8, "max_system_fraction": 0.9}));
        assert!(twice.is_err_and(|message| message.contains("set twice")));
    }

    #[test]
    fn an_unknown_key_names_the_nearest_one() {
        let message = checked(json!({"learning_rat": 0.1})).expect_err("it is unknown");
        assert!(
            message.contains("did you mean `learning_rate`?"),
            "{message}"
        );
    }

    #[test]
    fn a_flag_is_read_like_a_key_of_a_file() {
        let parse = |key: &str, text: &str| setting(key).expect("it is known").parse(text);
        assert_eq!(parse("epochs", "3"), Ok(json!(3)));
        assert_eq!(parse("checkpoint_blocks", "all"), Ok(json!("all")));
        assert_eq!(parse("memory_cap_bytes", "8GB"), Ok(json!(8u64 << 30)));
        assert_eq!(parse("train_only", "last:2"), Ok(json!("last:2")));
        assert_eq!(parse("quantize", "4"), Ok(json!(4)));
        assert_eq!(parse("quantize", "nf4"), Ok(json!("nf4")));
        assert_eq!(parse("quantize", "6"), Err("must be 8, `nf4` or 4".into()));
        assert!(parse("train_only", "tail").is_err());
        let wrong = parse("max_system_fraction", "2");
        assert_eq!(wrong, Err("must be a number from 0.5 to 0.95".into()));
    }
}
