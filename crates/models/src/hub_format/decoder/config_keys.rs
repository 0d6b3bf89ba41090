//! The keys of a decoder's `config.json`. A key that is in no list here may change the network in a
//! way that Ebb does not compute, so it is refused unless its value turns the feature off.

use crate::error::Result;
use crate::hub_format::json_config::JsonConfig;
use serde_json::Value;

/// Keys that are read.
// tidy: table
#[rustfmt::skip]
const READ: &[&str] = &[
    "attention_bias", "attn_logit_softcapping", "final_logit_softcapping", "head_dim",
    "hidden_act", "hidden_activation", "hidden_size", "intermediate_size", "layer_types",
    "max_position_embeddings", "max_window_layers", "mlp_bias", "model_type",
    "no_rope_layer_interval", "no_rope_layers", "num_attention_heads", "num_hidden_layers",
    "num_key_value_heads", "original_max_position_embeddings", "partial_rotary_factor",
    "query_pre_attn_scalar", "rms_norm_eps", "rope_local_base_freq", "rope_parameters",
    "rope_scaling", "rope_theta", "sliding_window", "sliding_window_pattern",
    "tie_word_embeddings", "use_sliding_window", "vocab_size",
];

/// Keys that change nothing that Ebb computes: names, versions, initial values, special tokens, and
/// defaults for generation.
// tidy: table
#[rustfmt::skip]
const WITHOUT_EFFECT: &[&str] = &[
    "architectures", "auto_map", "bad_words_ids", "begin_suppress_tokens", "bos_token_id",
    "cache_implementation", "chunk_size_feed_forward", "diversity_penalty", "do_sample", "dtype",
    "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id",
    "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
    "forced_eos_token_id", "id2label", "initializer_range", "is_decoder", "is_llama_config",
    "label2id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_beam_groups",
    "num_beams", "num_labels", "num_return_sequences", "output_attentions", "output_hidden_states",
    "output_scores", "pad_token_id", "prefix", "pretraining_tp", "problem_type",
    "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate",
    "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tokenizer_class",
    "top_k", "top_p", "torch_dtype", "torchscript", "typical_p", "unk_token_id", "use_bfloat16",
    "use_cache",
];

/// Keys of which Ebb supports one value.
const FIXED: &[(&str, f64)] = &[("full_attn_mod", 1.0), ("interpolate_factor", 1.0)];

/// Fails if the config has a key that Ebb does not know.
pub(super) fn refuse_unknown_keys(config: &JsonConfig) -> Result<()> {
    let keys = config.json().as_object().into_iter().flatten();
    let unknown: Vec<String> = keys
        .filter(|(key, value)| !is_known(key, value))
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the config has settings that Ebb does not know: {}; without them, Ebb would compute a different network",
        unknown.join(", ")
    );
    Err(config.refuse(reason))
}

fn is_known(key: &str, value: &Value) -> bool {
    let is_off = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(true) => false,
    };
    let is_note = ["_", "transformers", "unsloth"]
        .iter()
        .any(|prefix| key.starts_with(prefix));
    let is_fixed = FIXED
        .iter()
        .any(|&(name, needed)| name == key && value.as_f64() == Some(needed));
    is_off || is_note || is_fixed || READ.contains(&key) || WITHOUT_EFFECT.contains(&key)
}
