//! The keys of a run config and their allowed values: one table for files, presets, the terminal
//! and the window. Knows models and tasks only by name.

use crate::RunlogError;
use crate::blocks;
use crate::interval::Interval;
use crate::words::{nearest, parse_bytes};
use serde_json::{Map, Value};

/// The allowed values of a key.
pub(crate) enum Allowed {
    /// Any path.
    Path,
    /// Any name.
    Name,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An integer in this inclusive range.
    Integer(u64, u64),
    /// A number in this inclusive range.
    Number(f64, f64),
    /// `10min`, `2epochs` or `500steps`.
    Interval,
    /// A number of blocks, or `all`.
    Blocks,
    /// A number of bytes of at least this, or a text such as `8GB`.
    Bytes(u64),
    /// Values for machines with at least this much memory.
    Tiers,
}

use Allowed::{Blocks, Bytes, Integer, Name, Number, Path, Tiers, Word};

/// Counts are JavaScript numbers in the window, which are exact up to here.
const MAX_EXACT: u64 = (1 << 53) - 1;

/// Models for images, texts and documents; pretrained models; compressors.
const MODELS: &[&str] = &[
    "convnet",
    "vit_micro",
    "resnet18",
    "resnet34",
    "resnet50",
    "vit_tiny",
    "vit_small",
    "vit_base",
    "text_micro",
    "text_mini",
    "gpt_micro",
    "gpt_mini",
    "gpt_small",
    "bert",
    "vit",
    "deit",
    "dinov2",
    "resnet",
    "gpt2",
    "compress_micro",
    "compress_mini",
    "compress_small",
];

/// Every key of [`RunConfig`](crate::RunConfig), in its order.
pub(crate) const KEYS: [(&str, Allowed); 54] = [
    ("folder", Path),
    (
        "task",
        Word(&[
            "image-classification",
            "text-classification",
            "language-model",
            "token-compression",
        ]),
    ),
    ("model", Word(MODELS)),
    ("from", Path),
    ("train_only", Name),
    ("adapter_rank", Integer(1, 1024)),
    ("adapter_alpha", Number(1e-3, 1e4)),
    ("quantize", Integer(4, 8)),
    ("image_size", Integer(16, 1024)),
    ("tokens", Integer(8, 4096)),
    ("vocabulary", Integer(300, 65_536)),
    ("class_weights", Word(&["none", "balanced"])),
    ("text_column", Name),
    ("label_column", Name),
    (
        "policy",
        Word(&["learned", "random", "every-kth", "frequency"]),
    ),
    (
        "policy_learning",
        Word(&["gumbel", "policy-gradient", "joint"]),
    ),
    ("keep_fraction", Number(0.01, 0.99)),
    ("keep_cost", Number(0.0, 100.0)),
    ("temperature", Number(0.01, 100.0)),
    ("final_temperature", Number(0.01, 100.0)),
    ("targets", Name),
    ("target_weight", Number(0.001, 1000.0)),
    ("loss_balance", Word(&["fixed", "uncertainty"])),
    ("group_by", Name),
    ("epochs", Integer(1, 100_000)),
    ("steps", Integer(1, 100_000_000)),
    ("effective_batch", Integer(1, 65_536)),
    ("micro_batch", Integer(1, 65_536)),
    ("first_micro_batch", Integer(1, 65_536)),
    ("optimizer", Word(&["adamw", "adamw8bit", "sgd"])),
    ("learning_rate", Number(1e-9, 10.0)),
    ("weight_decay", Number(0.0, 10.0)),
    ("warmup_fraction", Number(0.0, 1.0)),
    ("schedule", Word(&["cosine", "rising"])),
    ("label_smoothing", Number(0.0, 0.99)),
    ("clip_norm", Number(1e-6, 1e6)),
    ("ema_decay", Number(0.0, 0.999_999)),
    ("augment", Word(&["none", "standard", "randaugment"])),
    ("mix", Word(&["none", "mixup", "cutmix", "both"])),
    ("held_out_fraction", Number(0.0, 0.99)),
    ("device", Word(&["auto", "metal", "cuda", "cpu"])),
    ("precision", Word(&["f32", "bf16", "f16", "f64"])),
    ("checkpoint_blocks", Blocks),
    ("threads", Integer(1, 1024)),
    ("workers", Integer(0, 256)),
    ("memory_cap_bytes", Bytes(64 << 20)),
    ("memory_cap_fraction", Number(0.1, 0.95)),
    ("max_system_fraction", Number(0.5, 0.95)),
    ("max_suspended_minutes", Integer(1, 100_000)),
    ("seed", Integer(0, MAX_EXACT)),
    ("dev_samples", Integer(1, MAX_EXACT)),
    ("checkpoint_every", Allowed::Interval),
    ("evaluate_every_epochs", Integer(1, 100_000)),
    ("by_memory", Tiers),
];

/// Keys of version 0.1.0 and their current names.
const RENAMED: [(&str, &str); 5] = [
    ("politeness", "max_system_fraction"),
    ("parked_most_minutes", "max_suspended_minutes"),
    ("kept_fraction", "keep_fraction"),
    ("kept_cost", "keep_cost"),
    ("last_temperature", "final_temperature"),
];

impl Allowed {
    /// The end of the sentence "must be …": "an integer from 16 to 1024".
    fn describe(&self) -> String {
        match self {
            Path => "a path in quotes".into(),
            Name => "a name in quotes".into(),
            Word([one]) => format!("`{one}`"),
            Word(words) => format!("one of `{}`", words.join("`, `")),
            Integer(least, MAX_EXACT) => format!("an integer of at least {least}"),
            Integer(least, most) => format!("an integer from {least} to {most}"),
            Number(least, most) => format!("a number from {least} to {most}"),
            Blocks => "a number of blocks, or `all`".into(),
            Allowed::Interval => "an interval, as `10min`, `2epochs` or `500steps`".into(),
            Bytes(least) => format!(
                "a size of memory of at least {}, as 8GB in quotes or a number of bytes",
                crate::words::format_bytes(*least)
            ),
            Tiers => "a list of tables with `at_least`, a size of memory, and `effective_batch` or `first_micro_batch`".into(),
        }
    }

    /// The value as written; a number of bytes also in units.
    fn found(&self, value: &Value) -> String {
        match (self, value.as_u64()) {
            (Bytes(_), Some(bytes)) => format!("{bytes} ({})", crate::words::format_bytes(bytes)),
            _ => found(value),
        }
    }

    /// Converts the value to what the config stores; `None` if it is not allowed.
    fn accept(&self, value: &Value) -> Option<Value> {
        let fits = match self {
            Path | Name => value.is_string(),
            Word(words) => value.as_str().is_some_and(|v| words.contains(&v)),
            Integer(least, most) => value.as_u64().is_some_and(|v| (least..=most).contains(&&v)),
            Number(least, most) => value.as_f64().is_some_and(|v| (least..=most).contains(&&v)),
            Blocks => match value {
                Value::String(word) => word == "all",
                number => number
                    .as_u64()
                    .is_some_and(|count| count <= blocks::MAX_COUNT),
            },
            Allowed::Interval => value.as_str().is_some_and(|v| Interval::parse(v).is_ok()),
            Bytes(least) => {
                let bytes = match value {
                    Value::String(text) => parse_bytes(text).ok()?,
                    number => number.as_u64()?,
                };
                return (bytes >= *least).then(|| Value::from(bytes));
            }
            Tiers => return value.as_array()?.iter().map(tier).collect(),
        };
        fits.then(|| value.clone())
    }
}

/// Converts one table of [`Allowed::Tiers`].
fn tier(value: &Value) -> Option<Value> {
    let accept = |(key, value): (&String, &Value)| {
        let allowed = match key.as_str() {
            "at_least" => Bytes(1),
            "effective_batch" | "first_micro_batch" => Integer(1, 65_536),
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

/// Checks each entry and renames old keys. `place` describes where a key is: "run.toml, line 3".
pub(crate) fn check(
    entries: Map<String, Value>,
    place: impl Fn(&str) -> String,
) -> Result<Map<String, Value>, RunlogError> {
    let has_key = |key: &str| entries.contains_key(key);
    let twice = RENAMED
        .iter()
        .find(|(old, new)| has_key(old) && has_key(new));
    if let Some((old, new)) = twice {
        return Err(RunlogError::UnknownKey {
            place: place(old),
            key: (*old).to_owned(),
            hint: format!("it is called `{new}` now"),
        });
    }
    let accept = |(key, value): (String, Value)| {
        let place = place(&key);
        let key = current_name(key);
        let Some((_, allowed)) = KEYS.iter().find(|(known, _)| *known == key) else {
            return Err(RunlogError::UnknownKey {
                place,
                hint: hint(&key),
                key,
            });
        };
        match allowed.accept(&value) {
            Some(value) => Ok((key, value)),
            None => Err(RunlogError::ConfigValue {
                place,
                key,
                found: allowed.found(&value),
                allowed: allowed.describe(),
            }),
        }
    };
    entries.into_iter().map(accept).collect()
}

/// The current name of a key that was renamed; otherwise the key itself.
fn current_name(key: String) -> String {
    match RENAMED.iter().find(|(old, _)| *old == key) {
        Some((_, new)) => (*new).to_owned(),
        None => key,
    }
}

fn hint(key: &str) -> String {
    let known = KEYS.iter().map(|(known, _)| *known);
    match nearest(key, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

fn found(value: &Value) -> String {
    match value {
        Value::Null => "not a number".into(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a table".into(),
        other => other.to_string(),
    }
}
