//! The keys of a run config and what each may be: one table for files, presets, the terminal and the window.
//! Knows the words of a model or task only as text.

use crate::RunlogError;
use crate::blocks;
use crate::every::Every;
use crate::words::{nearest, parse_bytes};
use serde_json::{Map, Value};

/// What a value may be.
pub(crate) enum Allowed {
    /// Any path.
    Path,
    /// Any name.
    Name,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number between two, both included.
    Whole(u64, u64),
    /// A number between two, both included.
    Number(f64, f64),
    /// `10min`, `2epochs` or `500steps`.
    Rhythm,
    /// A number of blocks, or `all`.
    Blocks,
    /// A number of bytes, or words such as `8GB`.
    Bytes(u64),
    /// Values for machines with at least so much memory.
    Tiers,
}

use Allowed::{Blocks, Bytes, Name, Number, Path, Rhythm, Tiers, Whole, Word};

/// Counts in the window are plain numbers, which are exact up to here.
const EXACT: u64 = (1 << 53) - 1;

/// Networks: of photographs, of texts, of documents; published ones.
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
    ("adapter_rank", Whole(1, 1024)),
    ("adapter_alpha", Number(1e-3, 1e4)),
    ("quantize", Whole(4, 8)),
    ("image_size", Whole(16, 1024)),
    ("tokens", Whole(8, 4096)),
    ("vocabulary", Whole(300, 65_536)),
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
    ("kept_fraction", Number(0.01, 0.99)),
    ("kept_cost", Number(0.0, 100.0)),
    ("temperature", Number(0.01, 100.0)),
    ("last_temperature", Number(0.01, 100.0)),
    ("targets", Name),
    ("target_weight", Number(0.001, 1000.0)),
    ("loss_balance", Word(&["fixed", "uncertainty"])),
    ("group_by", Name),
    ("epochs", Whole(1, 100_000)),
    ("steps", Whole(1, 100_000_000)),
    ("effective_batch", Whole(1, 65_536)),
    ("micro_batch", Whole(1, 65_536)),
    ("first_micro_batch", Whole(1, 65_536)),
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
    ("threads", Whole(1, 1024)),
    ("workers", Whole(0, 256)),
    ("memory_cap_bytes", Bytes(64 << 20)),
    ("memory_cap_fraction", Number(0.1, 0.95)),
    ("politeness", Number(0.5, 0.95)),
    ("parked_most_minutes", Whole(1, 100_000)),
    ("seed", Whole(0, EXACT)),
    ("dev_samples", Whole(1, EXACT)),
    ("checkpoint_every", Rhythm),
    ("evaluate_every_epochs", Whole(1, 100_000)),
    ("by_memory", Tiers),
];

impl Allowed {
    /// "16 to 1024", as the end of "must be …".
    fn words(&self) -> String {
        match self {
            Path => "a path in quotes".into(),
            Name => "a name in quotes".into(),
            Word([one]) => format!("`{one}`"),
            Word(words) => format!("one of `{}`", words.join("`, `")),
            Whole(least, EXACT) => format!("a whole number of at least {least}"),
            Whole(least, most) => format!("a whole number from {least} to {most}"),
            Number(least, most) => format!("a number from {least} to {most}"),
            Blocks => "a number of blocks from 0 on, or `all`".into(),
            Rhythm => "how often, as `10min`, `2epochs` or `500steps`".into(),
            Bytes(least) => format!(
                "a size of memory of at least {}, as 8GB in quotes or a number of bytes",
                crate::words::format_bytes(*least)
            ),
            Tiers => "a list of tables with `at_least`, a size of memory, and `effective_batch` or `first_micro_batch`".into(),
        }
    }

    /// The value as written; a number of bytes also as one reads it.
    fn found(&self, value: &Value) -> String {
        match (self, value.as_u64()) {
            (Bytes(_), Some(bytes)) => format!("{bytes} ({})", crate::words::format_bytes(bytes)),
            _ => found(value),
        }
    }

    /// The value as the config holds it, or nothing when it is not allowed.
    fn accept(&self, value: &Value) -> Option<Value> {
        let fits = match self {
            Path | Name => value.is_string(),
            Word(words) => value.as_str().is_some_and(|v| words.contains(&v)),
            Whole(least, most) => value.as_u64().is_some_and(|v| (least..=most).contains(&&v)),
            Number(least, most) => value.as_f64().is_some_and(|v| (least..=most).contains(&&v)),
            Blocks => match value {
                Value::String(word) => word == "all",
                number => number.as_u64().is_some_and(|count| count <= blocks::MOST),
            },
            Rhythm => value.as_str().is_some_and(|v| Every::parse(v).is_ok()),
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

/// One table of [`Allowed::Tiers`] as the config holds it.
fn tier(value: &Value) -> Option<Value> {
    let accept = |(key, value): (&String, &Value)| {
        let allowed = match key.as_str() {
            "at_least" => Bytes(1),
            "effective_batch" | "first_micro_batch" => Whole(1, 65_536),
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

/// Checks each entry. `place` says where a key stands: "run.toml, line 3".
pub(crate) fn check(
    entries: Map<String, Value>,
    place: impl Fn(&str) -> String,
) -> Result<Map<String, Value>, RunlogError> {
    let accept = |(key, value): (String, Value)| {
        let Some((_, allowed)) = KEYS.iter().find(|(known, _)| *known == key) else {
            return Err(RunlogError::UnknownKey {
                place: place(&key),
                hint: hint(&key),
                key,
            });
        };
        match allowed.accept(&value) {
            Some(value) => Ok((key, value)),
            None => Err(RunlogError::ConfigValue {
                place: place(&key),
                key,
                found: allowed.found(&value),
                allowed: allowed.words(),
            }),
        }
    };
    entries.into_iter().map(accept).collect()
}

fn hint(key: &str) -> String {
    let known = KEYS.iter().map(|(known, _)| *known);
    match nearest(key, known.clone()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("The keys are {}.", known.collect::<Vec<_>>().join(", ")),
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
