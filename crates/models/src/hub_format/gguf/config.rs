//! The `config.json` of the network in a GGUF file, with the keys of the transformers library. A
//! key of the network that is not known may change what it computes, so it is refused by name.

use super::families::{Family, family_of};
use super::header::GgufHeader;
use crate::error::{ModelError, Result};
use crate::hub_format::decoder::class_of;
use crate::rope::{Rope, RopeScaling};
use candle_core::quantized::gguf_file::Value;
use serde_json::{Value as Json, json};

/// The keys of an architecture that are read, or change nothing.
// tidy: table
#[rustfmt::skip]
const KEYS: &[&str] = &[
    "attention.causal", "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.layer_norm_rms_epsilon", "attention.sliding_window", "attention.value_length",
    "attn_logit_softcapping", "block_count", "context_length", "embedding_length",
    "feed_forward_length", "final_logit_softcapping", "rope.dimension_count", "rope.freq_base",
    "rope.freq_base_swa", "rope.scaling.attn_factor", "rope.scaling.factor",
    "rope.scaling.finetuned", "rope.scaling.original_context_length", "rope.scaling.type",
    "tensor_data_layout", "vocab_size",
];

/// Largest width of a head. Those of published models have at most 576.
const MAX_HEAD_WIDTH: usize = 1 << 16;
/// Numbers of layers of the Gemma 2 and 3 with 27 billion parameters, whose attention is scaled by
/// the width of the model divided by the heads.
const LARGE_GEMMA_LAYERS: [usize; 2] = [46, 62];
/// The factors of Llama 3.1 and Llama 3.2. Their other values are 1, 4 and 8,192 tokens.
const LLAMA3_FACTORS: [f64; 2] = [8.0, 32.0];

/// Reads the keys of one architecture.
struct Network<'a> {
    header: &'a GgufHeader,
    family: Family,
}

/// The `config.json`.
///
/// # Errors
/// The network is unknown, or has keys that Ebb does not know.
pub(super) fn config(header: &GgufHeader) -> Result<Json> {
    let network = Network {
        header,
        family: family_of(header)?,
    };
    network.refuse_unknown_keys()?;
    network.config()
}

impl Network<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.family.architecture)
    }

    fn count(&self, key: &str) -> Result<Option<usize>> {
        let found = self.header.count(&self.key(key))?;
        Ok(found.filter(|count| *count > 0))
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        let found = self.header.number(&self.key(key))?;
        Ok(found.filter(|number| *number != 0.0))
    }

    fn required(&self, key: &str) -> Result<usize> {
        let missing = || self.missing(&self.key(key));
        self.count(key)?.ok_or_else(missing)
    }

    fn missing(&self, key: &str) -> ModelError {
        let reason = format!("the file has no {key}; choose another GGUF file of the model");
        self.header.refuse(reason)
    }

    fn has_tensor(&self, name: &str) -> bool {
        self.header.tensors().contains_key(name)
    }

    fn refuse_unknown_keys(&self) -> Result<()> {
        let prefix = self.key("");
        let entries = self.header.entries(&prefix);
        let mut unknown: Vec<&str> = entries
            .filter(|(key, value)| !KEYS.contains(key) && !is_off(value))
            .map(|(key, _)| key)
            .collect();
        unknown.sort_unstable();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(self.header.refuse(format!(
            "the network has settings that Ebb does not know: {}; choose the Hugging Face folder of the model instead",
            unknown.join(", ")
        )))
    }

    fn config(&self) -> Result<Json> {
        let embeddings = self.header.tensors().get("token_embd.weight");
        let Some(&[vocabulary, width]) = embeddings.map(|tensor| tensor.shape()) else {
            return Err(self.missing("token_embd.weight"));
        };
        let layers = self.required("block_count")?;
        if layers > self.header.tensors().len() {
            let reason = format!(
                "the file describes {layers} layers, but has fewer tensors; download the file again"
            );
            return Err(self.header.refuse(reason));
        }
        let heads = self.required("attention.head_count")?;
        let head_width = self.count("attention.key_length")?.unwrap_or(width / heads);
        if head_width > MAX_HEAD_WIDTH {
            let reason = format!(
                "the width of a head, {head_width}, is impossible; download the file again"
            );
            return Err(self.header.refuse(reason));
        }
        if self.count("attention.value_length")?.unwrap_or(head_width) != head_width {
            let reason = "the keys and values of its attention have different widths, which Ebb does not support; choose another model";
            return Err(self.header.refuse(reason));
        }
        let epsilon = self.number("attention.layer_norm_rms_epsilon")?;
        let epsilon = epsilon.ok_or_else(|| self.missing("attention.layer_norm_rms_epsilon"))?;
        let mut config = json!({
            "architectures": [class_of(self.family.model_type)],
            "model_type": self.family.model_type,
            "vocab_size": vocabulary,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "intermediate_size": self.required("feed_forward_length")?,
            "num_attention_heads": heads,
            "num_key_value_heads": self.count("attention.head_count_kv")?.unwrap_or(heads),
            "head_dim": head_width,
            "rms_norm_eps": epsilon,
            "max_position_embeddings": self.required("context_length")?,
            "rope_theta": self.number("rope.freq_base")?.unwrap_or(1e4),
            "tie_word_embeddings": !self.has_tensor("output.weight"),
            "attention_bias": self.has_tensor("blk.0.attn_output.bias"),
            "mlp_bias": self.has_tensor("blk.0.ffn_down.bias"),
        });
        self.add_rope(&mut config, head_width)?;
        self.add_windows_and_caps(&mut config, head_width)?;
        self.add_special_tokens(&mut config)?;
        Ok(config)
    }

    fn add_windows_and_caps(&self, config: &mut Json, head_width: usize) -> Result<()> {
        let window = self.count("attention.sliding_window")?;
        if let Some(window) = window.filter(|_| self.family.is_gemma || self.is("phi3")) {
            config["sliding_window"] = json!(window);
        }
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if let Some(cap) = self.number(key)? {
                config[key] = json!(cap);
            }
        }
        if !self.family.is_gemma {
            return Ok(());
        }
        if window.is_none() {
            return Err(self.missing(&self.key("attention.sliding_window")));
        }
        let layers = config["num_hidden_layers"].as_u64().unwrap_or_default();
        let is_large = LARGE_GEMMA_LAYERS.iter().any(|n| *n as u64 == layers);
        let scale = if is_large {
            self.required("embedding_length")? / self.required("attention.head_count")?
        } else {
            head_width
        };
        config["query_pre_attn_scalar"] = json!(scale);
        if self.is("gemma3") {
            let base = self.number("rope.freq_base_swa")?;
            config["rope_local_base_freq"] = json!(base.unwrap_or(1e4));
        }
        Ok(())
    }

    fn is(&self, architecture: &str) -> bool {
        self.family.architecture == architecture
    }

    fn add_rope(&self, config: &mut Json, head_width: usize) -> Result<()> {
        let rotated = self.count("rope.dimension_count")?.unwrap_or(head_width);
        if rotated != head_width {
            config["partial_rotary_factor"] = json!(rotated as f64 / head_width as f64);
        }
        let theta = config["rope_theta"].as_f64().unwrap_or_default();
        let kind = self.header.text(&self.key("rope.scaling.type"))?;
        let original = self.count("rope.scaling.original_context_length")?;
        let attention = self.number("rope.scaling.attn_factor")?;
        let long = self.header.tensor_values("rope_factors_long.weight")?;
        let short = self.header.tensor_values("rope_factors_short.weight")?;
        let divisors = self.header.tensor_values("rope_freqs.weight")?;
        let scaling = match (kind.unwrap_or("none"), long.zip(short), divisors) {
            ("none" | "longrope", Some((long, short)), None) => json!({
                "rope_type": "longrope",
                "short_factor": short,
                "long_factor": long,
                "original_max_position_embeddings": original,
                "attention_factor": attention,
            }),
            ("none", None, Some(divisors)) => llama3_scaling(rotated, theta, &divisors)
                .unwrap_or_else(|| divided(&divisors, &config["max_position_embeddings"])),
            ("none", None, None) => return Ok(()),
            ("linear", None, None) => json!({
                "rope_type": "linear",
                "factor": self.number("rope.scaling.factor")?,
            }),
            ("yarn", None, None) if attention.is_none_or(|factor| factor == 1.0) => json!({
                "rope_type": "yarn",
                "factor": self.number("rope.scaling.factor")?,
                "original_max_position_embeddings": original,
            }),
            (kind, _, _) => {
                return Err(self.header.refuse(format!(
                    "the file scales positions by the rule {kind:?}, which Ebb does not know; choose the Hugging Face folder of the model instead"
                )));
            }
        };
        config["rope_scaling"] = scaling;
        Ok(())
    }

    /// The tokens that begin a text and that end a text or an answer.
    fn add_special_tokens(&self, config: &mut Json) -> Result<()> {
        let id = |name: &str| {
            self.header
                .count(&format!("tokenizer.ggml.{name}_token_id"))
        };
        if let Some(first) = id("bos")? {
            config["bos_token_id"] = json!(first);
        }
        let mut ends: Vec<usize> = Vec::new();
        for name in ["eos", "eot"] {
            ends.extend(id(name)?.filter(|end| !ends.contains(end)));
        }
        if !ends.is_empty() {
            config["eos_token_id"] = json!(ends);
        }
        Ok(())
    }
}

/// Whether a value turns its feature off, or is only a note.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::F32(number) => *number == 0.0,
        Value::F64(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::U8(n) => *n == 0,
        Value::I8(n) => *n == 0,
        Value::U16(n) => *n == 0,
        Value::I16(n) => *n == 0,
        Value::U32(n) => *n == 0,
        Value::I32(n) => *n == 0,
        Value::U64(n) => *n == 0,
        Value::I64(n) => *n == 0,
    }
}

/// The scaling of a published Llama 3, if the frequencies are divided as there.
fn llama3_scaling(rotated: usize, theta: f64, divisors: &[f32]) -> Option<Json> {
    if theta <= 1.0 || divisors.len() != rotated / 2 {
        return None;
    }
    let plain = Rope::new(rotated, theta, &RopeScaling::None);
    let is_like = |factor: &f64| {
        let scaling = RopeScaling::Llama3 {
            factor: *factor,
            low: 1.0,
            high: 4.0,
            original: 8192.0,
        };
        let scaled = Rope::new(rotated, theta, &scaling);
        let pairs = plain.frequencies().iter().zip(scaled.frequencies());
        let mut pairs = pairs.zip(divisors);
        pairs.all(|((plain, scaled), divisor)| {
            (plain / scaled / f64::from(*divisor) - 1.0).abs() < 1e-4
        })
    };
    let factor = LLAMA3_FACTORS.into_iter().find(is_like)?;
    Some(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }))
}

/// A scaling that divides each frequency by its divisor, whatever the length of the text.
fn divided(divisors: &[f32], tokens: &Json) -> Json {
    json!({
        "rope_type": "longrope",
        "short_factor": divisors,
        "long_factor": divisors,
        "original_max_position_embeddings": tokens,
        "attention_factor": 1.0,
    })
}
