//! Decoder-only language models in their published format: Llama 3 (and SmolLM2), Mistral, Qwen 2
//! and 3, Gemma 2 and 3, Phi-3 and 4, SmolLM3 and OLMo 2. One row of [`FAMILIES`] per `model_type`.
//! A config that has a key which Ebb does not know is refused, because the key may change the
//! network.

mod config_keys;
mod rope_config;

use super::fine_tuning::{BlockLayout, LastNorm};
use super::hub_network::{HubNetwork, TextLimits};
use super::json_config::JsonConfig;
use crate::decoder::{DecoderBiases, DecoderLayer, DecoderNorms, DecoderShape, QueryKeyNorm};
use crate::error::Result;
use crate::rope::Rope;
use crate::tensor_map::{TensorRow, TensorTable, rows};
use config_keys::refuse_unknown_keys;
use rope_config::RopeConfig;
use tape::{Gate, RmsNormShape};

/// What a `model_type` means beyond the values in its config.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DecoderFamily {
    /// The `model_type`.
    pub name: &'static str,
    /// Its class in the transformers library.
    pub class: &'static str,
    pub norms: DecoderNorms,
    pub query_key_norm: QueryKeyNorm,
    /// Whether queries, keys and values have biases that no key of the config mentions.
    pub has_query_biases: bool,
    pub has_joint_maps: bool,
    /// Whether it is a Gemma: norms with weights around 0, scaled embeddings, a GELU gate, and a
    /// factor of attention from the config.
    pub is_gemma: bool,
    /// The layers that only see a window.
    pub windows: Windows,
    /// Width of a head that the config does not give; `None` for the width divided by the heads.
    pub head_width: Option<usize>,
    /// Defaults of `rms_norm_eps`, `rope_theta` and `tie_word_embeddings`.
    pub epsilon: f64,
    pub theta: f64,
    pub is_tied: bool,
}

/// The layers that only see a window, if the config does not list `layer_types`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Windows {
    /// None.
    None,
    /// All of them, if the config has a window.
    All,
    /// Those from `max_window_layers` on, if `use_sliding_window` is set.
    Last,
    /// All but each `n`-th.
    AllButEach(usize),
    /// Those without positions, if `use_sliding_window` is set.
    WithoutPositions,
}

const LLAMA: DecoderFamily = DecoderFamily {
    name: "llama",
    class: "LlamaForCausalLM",
    norms: DecoderNorms::Before,
    query_key_norm: QueryKeyNorm::None,
    has_query_biases: false,
    has_joint_maps: false,
    is_gemma: false,
    windows: Windows::None,
    head_width: None,
    epsilon: 1e-6,
    theta: 1e4,
    is_tied: false,
};

const GEMMA: DecoderFamily = DecoderFamily {
    norms: DecoderNorms::Both,
    is_gemma: true,
    head_width: Some(256),
    is_tied: true,
    ..LLAMA
};

// tidy: table
#[rustfmt::skip]
pub(crate) const FAMILIES: &[DecoderFamily] = &[
    LLAMA,
    DecoderFamily { name: "mistral", class: "MistralForCausalLM", windows: Windows::All, ..LLAMA },
    DecoderFamily { name: "qwen2", class: "Qwen2ForCausalLM", has_query_biases: true, windows: Windows::Last, ..LLAMA },
    DecoderFamily { name: "qwen3", class: "Qwen3ForCausalLM", query_key_norm: QueryKeyNorm::PerHead, windows: Windows::Last, head_width: Some(128), ..LLAMA },
    DecoderFamily { name: "gemma2", class: "Gemma2ForCausalLM", windows: Windows::AllButEach(2), ..GEMMA },
    DecoderFamily { name: "gemma3_text", class: "Gemma3ForCausalLM", query_key_norm: QueryKeyNorm::PerHead, windows: Windows::AllButEach(6), theta: 1e6, ..GEMMA },
    DecoderFamily { name: "phi3", class: "Phi3ForCausalLM", has_joint_maps: true, windows: Windows::All, epsilon: 1e-5, ..LLAMA },
    DecoderFamily { name: "smollm3", class: "SmolLM3ForCausalLM", windows: Windows::WithoutPositions, theta: 2e6, is_tied: true, ..LLAMA },
    DecoderFamily { name: "olmo2", class: "Olmo2ForCausalLM", norms: DecoderNorms::After, query_key_norm: QueryKeyNorm::Whole, epsilon: 1e-5, ..LLAMA },
];

/// The class of a `model_type` in the transformers library; empty if it is unknown.
pub(super) fn class_of(model_type: &str) -> &'static str {
    let found = FAMILIES.iter().find(|family| family.name == model_type);
    found.map_or("", |family| family.class)
}

/// A pretrained decoder, described by its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct HubDecoder {
    pub(crate) family: DecoderFamily,
    pub(crate) shape: DecoderShape,
}

impl HubDecoder {
    /// Reads the description of a decoder.
    ///
    /// # Errors
    /// The config has an unknown key, or a value that Ebb does not support.
    pub(crate) fn read(config: &JsonConfig) -> Result<Self> {
        let model_type = config.text("model_type", "");
        let found = FAMILIES.iter().find(|family| family.name == model_type);
        let Some(&family) = found else {
            return Err(config.refuse(format!("model_type is {model_type:?}, not a decoder")));
        };
        refuse_unknown_keys(config)?;
        let width = config.count("hidden_size")?;
        let (heads, key_heads, head_width) = heads(config, family, width)?;
        let (layers, ropes) = layers(config, family, head_width)?;
        let scale_of = if family.is_gemma {
            config.positive_or("query_pre_attn_scalar", 256.0)?
        } else {
            head_width as f64
        };
        let attention_bias = config.bool_or("attention_bias", false);
        let shape = DecoderShape {
            tokens: config.count_or("max_position_embeddings", 2048)?,
            vocabulary: config.count("vocab_size")?,
            width,
            heads,
            key_heads,
            head_width,
            hidden: config.count("intermediate_size")?,
            norm: RmsNormShape {
                epsilon: config.positive_or("rms_norm_eps", family.epsilon)?,
                offset: if family.is_gemma { 1.0 } else { 0.0 },
            },
            norms: family.norms,
            query_key_norm: family.query_key_norm,
            biases: DecoderBiases {
                queries: family.has_query_biases || attention_bias,
                projection: attention_bias,
                feed_forward: config.bool_or("mlp_bias", false),
            },
            has_joint_maps: family.has_joint_maps,
            gate: gate(config, family)?,
            embedding_scale: if family.is_gemma {
                (width as f64).sqrt()
            } else {
                1.0
            },
            has_tied_embeddings: config.bool_or("tie_word_embeddings", family.is_tied),
            attention_scale: 1.0 / scale_of.sqrt(),
            attention_cap: attention_cap(config, family)?,
            score_cap: cap(config, "final_logit_softcapping", family, Some(30.0))?,
            layers,
            ropes,
        };
        Ok(HubDecoder { family, shape })
    }

    /// The rows of the table for a single block, without those of the whole network.
    fn block_rows(&self) -> Vec<TensorRow> {
        let s = &self.shape;
        let mut all = Vec::new();
        let mut map = |theirs: [&'static str; 2], ours: [&'static str; 2], has_bias: bool| {
            all.push(TensorRow::same(theirs[0], ours[0]));
            if has_bias {
                all.push(TensorRow::same(theirs[1], ours[1]));
            }
        };
        let DecoderBiases {
            queries,
            projection,
            feed_forward,
        } = s.biases;
        let maps: &[MapRow] = if s.has_joint_maps {
            &JOINT_MAPS
        } else {
            &SEPARATE_MAPS
        };
        for &(theirs, ours, part) in maps.iter().chain(&SHARED_MAPS) {
            let has_bias = match part {
                Part::Queries => queries,
                Part::Projection => projection,
                Part::FeedForward => feed_forward,
            };
            map(theirs, ours, has_bias);
        }
        if s.query_key_norm != QueryKeyNorm::None {
            all.extend_from_slice(QUERY_KEY_NORMS);
        }
        all.extend_from_slice(match s.norms {
            DecoderNorms::Before => NORMS_BEFORE,
            DecoderNorms::After => NORMS_AFTER,
            DecoderNorms::Both => NORMS_BOTH,
        });
        all
    }
}

/// Heads of queries, heads of keys, and the width of a head.
fn heads(
    config: &JsonConfig,
    family: DecoderFamily,
    width: usize,
) -> Result<(usize, usize, usize)> {
    let heads = config.count("num_attention_heads")?;
    let key_heads = config.count_or("num_key_value_heads", heads)?;
    let default_head = family.head_width.unwrap_or(width / heads);
    let head_width = config.count_or("head_dim", default_head)?;
    if !heads.is_multiple_of(key_heads) {
        return Err(config.refuse(format!(
            "num_attention_heads = {heads} is not a multiple of num_key_value_heads = {key_heads}"
        )));
    }
    if !head_width.is_multiple_of(2) || head_width == 0 {
        return Err(config.refuse(format!("the width of a head, {head_width}, is odd or 0")));
    }
    Ok((heads, key_heads, head_width))
}

/// Which bias a map may have.
#[derive(Debug, Clone, Copy)]
enum Part {
    Queries,
    Projection,
    FeedForward,
}

/// Published weight and bias, Ebb's weight and bias, and which bias it is.
type MapRow = ([&'static str; 2], [&'static str; 2], Part);

macro_rules! map_row {
    ($theirs:literal, $ours:literal, $part:expr) => {
        (
            [
                concat!("layers.{}.", $theirs, ".weight"),
                concat!("layers.{}.", $theirs, ".bias"),
            ],
            [
                concat!("blocks.{}.", $ours, ".weight"),
                concat!("blocks.{}.", $ours, ".bias"),
            ],
            $part,
        )
    };
}

const SEPARATE_MAPS: [MapRow; 5] = [
    map_row!("self_attn.q_proj", "query", Part::Queries),
    map_row!("self_attn.k_proj", "key", Part::Queries),
    map_row!("self_attn.v_proj", "value", Part::Queries),
    map_row!("mlp.gate_proj", "gate", Part::FeedForward),
    map_row!("mlp.up_proj", "up", Part::FeedForward),
];
const JOINT_MAPS: [MapRow; 2] = [
    map_row!("self_attn.qkv_proj", "qkv", Part::Queries),
    map_row!("mlp.gate_up_proj", "gate_up", Part::FeedForward),
];
const SHARED_MAPS: [MapRow; 2] = [
    map_row!("self_attn.o_proj", "projection", Part::Projection),
    map_row!("mlp.down_proj", "down", Part::FeedForward),
];

macro_rules! norm_row {
    ($theirs:literal, $ours:literal) => {
        TensorRow::same(
            concat!("layers.{}.", $theirs, ".weight"),
            concat!("blocks.{}.", $ours, ".weight"),
        )
    };
}

const QUERY_KEY_NORMS: &[TensorRow] = &[
    norm_row!("self_attn.q_norm", "query_norm"),
    norm_row!("self_attn.k_norm", "key_norm"),
];
const NORMS_BEFORE: &[TensorRow] = &[
    norm_row!("input_layernorm", "norm1"),
    norm_row!("post_attention_layernorm", "norm2"),
];
const NORMS_AFTER: &[TensorRow] = &[
    norm_row!("post_attention_layernorm", "norm3"),
    norm_row!("post_feedforward_layernorm", "norm4"),
];
const NORMS_BOTH: &[TensorRow] = &[
    norm_row!("input_layernorm", "norm1"),
    norm_row!("post_attention_layernorm", "norm3"),
    norm_row!("pre_feedforward_layernorm", "norm2"),
    norm_row!("post_feedforward_layernorm", "norm4"),
];

/// The activation of the gate.
fn gate(config: &JsonConfig, family: DecoderFamily) -> Result<Gate> {
    let (key, default) = if family.is_gemma && config.get("hidden_activation").is_some() {
        ("hidden_activation", "gelu_pytorch_tanh")
    } else if family.is_gemma {
        ("hidden_act", "gelu_pytorch_tanh")
    } else {
        ("hidden_act", "silu")
    };
    match config.text(key, default) {
        "silu" | "swish" => Ok(Gate::Silu),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Ok(Gate::Gelu),
        other => Err(config.refuse(format!(
            "{key} is {other:?}, but Ebb supports only silu and gelu_pytorch_tanh"
        ))),
    }
}

/// A soft cap of a Gemma 2, with its default; `None` is written as null.
fn cap(
    config: &JsonConfig,
    key: &str,
    family: DecoderFamily,
    default: Option<f64>,
) -> Result<Option<f64>> {
    match (config.json().get(key), family.name) {
        (Some(value), _) if value.is_null() => Ok(None),
        (Some(_), _) => config.positive_or(key, 1.0).map(Some),
        (None, "gemma2") => Ok(default),
        (None, _) => Ok(None),
    }
}

/// The soft cap of attention scores, which Gemma 3 has in its config but not in its network.
fn attention_cap(config: &JsonConfig, family: DecoderFamily) -> Result<Option<f64>> {
    let key = "attn_logit_softcapping";
    let found = cap(config, key, family, Some(50.0))?;
    match (found, family.name) {
        (Some(_), "gemma2") | (None, _) => Ok(found),
        (Some(cap), name) => {
            Err(config.refuse(format!("{key} is {cap}, which {name} does not support")))
        }
    }
}

/// The window and the rotary embedding of each layer, and the rotary embeddings.
fn layers(
    config: &JsonConfig,
    family: DecoderFamily,
    head_width: usize,
) -> Result<(Vec<DecoderLayer>, Vec<Rope>)> {
    let depth = config.count("num_hidden_layers")?;
    let rope = RopeConfig {
        config,
        is_partial: family.has_joint_maps,
        head_width,
    };
    // Gemma 3 rotates the layers with a window by angles of their own.
    let has_local_rope = family.name == "gemma3_text";
    let ropes = if has_local_rope {
        vec![
            rope.layered("full_attention", "rope_theta", family.theta)?,
            rope.layered("sliding_attention", "rope_local_base_freq", 1e4)?,
        ]
    } else {
        vec![rope.single(family.theta)?]
    };
    let positions = with_positions(config, family, depth)?;
    let windows = windows(config, family, &positions)?;
    let layer = |(has_positions, window): (bool, Option<usize>)| DecoderLayer {
        window,
        rope: has_positions.then(|| usize::from(has_local_rope && window.is_some())),
    };
    let layers = positions.into_iter().zip(windows).map(layer).collect();
    Ok((layers, ropes))
}

/// Whether each layer knows positions: SmolLM3 has layers that do not.
fn with_positions(config: &JsonConfig, family: DecoderFamily, depth: usize) -> Result<Vec<bool>> {
    if family.windows != Windows::WithoutPositions {
        return Ok(vec![true; depth]);
    }
    let interval = config.count_or("no_rope_layer_interval", 4)?;
    let Some(listed) = config.get("no_rope_layers") else {
        return Ok((1..=depth).map(|i| !i.is_multiple_of(interval)).collect());
    };
    let flags = listed.as_array().map(|list| {
        let flags = list
            .iter()
            .map(|flag| flag.as_u64().filter(|&flag| flag < 2));
        flags.map(|flag| flag.map(|flag| flag == 1)).collect()
    });
    let flags: Option<Vec<bool>> = flags.flatten();
    match flags {
        Some(flags) if flags.len() >= depth => Ok(flags[..depth].to_vec()),
        _ => Err(config.refuse(format!(
            "no_rope_layers = {listed} must have a 0 or 1 for each of {depth} layers"
        ))),
    }
}

/// The window of each layer.
fn windows(
    config: &JsonConfig,
    family: DecoderFamily,
    positions: &[bool],
) -> Result<Vec<Option<usize>>> {
    let depth = positions.len();
    let is_optional = matches!(family.windows, Windows::Last | Windows::WithoutPositions);
    if family.windows == Windows::None
        || (is_optional && !config.bool_or("use_sliding_window", false))
        || config.get("sliding_window").is_none()
    {
        return Ok(vec![None; depth]);
    }
    let window = config.count("sliding_window")?;
    let is_listed = family.windows != Windows::All;
    let local: Vec<bool> = if let Some(types) = config.get("layer_types").filter(|_| is_listed) {
        let types = types.as_array().map(Vec::as_slice).unwrap_or_default();
        let local = types.iter().map(|kind| match kind.as_str() {
            Some("sliding_attention") => Some(true),
            Some("full_attention") => Some(false),
            _ => None,
        });
        let local: Option<Vec<bool>> = local.collect();
        match local.filter(|local| local.len() == depth) {
            Some(local) => local,
            None => {
                return Err(config.refuse(format!(
                    "layer_types must be a list of full_attention or sliding_attention, one for each of {depth} layers"
                )));
            }
        }
    } else {
        match family.windows {
            Windows::None => vec![false; depth],
            Windows::All => vec![true; depth],
            Windows::Last => {
                let first = config.count_or("max_window_layers", 28)?;
                (0..depth).map(|layer| layer >= first).collect()
            }
            Windows::AllButEach(default) => {
                let each = config.count_or("sliding_window_pattern", default)?;
                (1..=depth).map(|i| !i.is_multiple_of(each)).collect()
            }
            Windows::WithoutPositions => positions.iter().map(|has| !has).collect(),
        }
    };
    Ok(local
        .into_iter()
        .map(|is_local| is_local.then_some(window))
        .collect())
}

impl HubNetwork for HubDecoder {
    fn table(&self) -> TensorTable {
        let whole = [
            TensorRow::same("embed_tokens.weight", "embedding.weight"),
            TensorRow::same("norm.weight", "norm.weight"),
        ];
        let mut body = rows(&whole, 0);
        body.extend(rows(&self.block_rows(), self.shape.layers.len()));
        let is_tied = self.shape.has_tied_embeddings;
        TensorTable {
            prefix: "model.",
            body,
            head: if is_tied {
                Vec::new()
            } else {
                rows(&[TensorRow::same("lm_head.weight", "output.weight")], 0)
            },
            // Frequencies of rotary embeddings, which follow from the config.
            unneeded: if is_tied {
                &["lm_head.weight", "layers.{}.self_attn.rotary_emb.inv_freq"]
            } else {
                &["layers.{}.self_attn.rotary_emb.inv_freq"]
            },
        }
    }

    fn blocks(&self) -> BlockLayout {
        BlockLayout {
            count: self.shape.layers.len(),
            last_norm: LastNorm::AfterBlocks,
            has_embedding_table: !self.shape.has_tied_embeddings,
        }
    }

    fn text_limits(&self) -> Option<TextLimits> {
        Some(TextLimits {
            tokens: self.shape.tokens as u32,
            vocabulary: self.shape.vocabulary as u32,
        })
    }

    fn total_width(&self) -> usize {
        self.shape.width * self.shape.layers.len()
    }

    fn has_new_head(&self) -> bool {
        false
    }

    fn estimated_parameters(&self) -> f64 {
        let s = &self.shape;
        let number = |count: usize| count as f64;
        let heads = number(2 * s.heads + 2 * s.key_heads) * number(s.head_width);
        let block = number(s.width) * (heads + 3.0 * number(s.hidden));
        let tables = if s.has_tied_embeddings { 1.0 } else { 2.0 };
        number(s.layers.len()) * block + tables * number(s.vocabulary) * number(s.width)
    }
}
