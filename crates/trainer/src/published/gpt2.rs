//! GPT-2 (Radford et al. 2019) as it is published: `model_type` gpt2. Its maps are written inputs by outputs, its queries, keys
//! and values are one map, and its output weights are its embeddings.

use super::names::{Row, Table, Take, rows};
use super::settings::Settings;
use super::{gelu, heads};
use crate::error::Result;
use crate::models::{BlockShape, GptShape};

const BODY: &[Row] = &[
    Row::same("wte.weight", "embedding.weight"),
    Row::same("wpe.weight", "positions"),
    Row::same("h.{}.ln_1.weight", "blocks.{}.norm1.weight"),
    Row::same("h.{}.ln_1.bias", "blocks.{}.norm1.bias"),
    Row::taking(
        "h.{}.attn.c_attn.weight",
        "blocks.{}.qkv.weight",
        Take::Turned,
    ),
    Row::taking(
        "h.{}.attn.c_attn.bias",
        "blocks.{}.query.bias",
        Take::OfThird(0),
    ),
    Row::taking(
        "h.{}.attn.c_attn.bias",
        "blocks.{}.value.bias",
        Take::OfThird(2),
    ),
    Row::taking(
        "h.{}.attn.c_proj.weight",
        "blocks.{}.projection.weight",
        Take::Turned,
    ),
    Row::same("h.{}.attn.c_proj.bias", "blocks.{}.projection.bias"),
    Row::same("h.{}.ln_2.weight", "blocks.{}.norm2.weight"),
    Row::same("h.{}.ln_2.bias", "blocks.{}.norm2.bias"),
    Row::taking("h.{}.mlp.c_fc.weight", "blocks.{}.up.weight", Take::Turned),
    Row::same("h.{}.mlp.c_fc.bias", "blocks.{}.up.bias"),
    Row::taking(
        "h.{}.mlp.c_proj.weight",
        "blocks.{}.down.weight",
        Take::Turned,
    ),
    Row::same("h.{}.mlp.c_proj.bias", "blocks.{}.down.bias"),
    Row::same("ln_f.weight", "norm.weight"),
    Row::same("ln_f.bias", "norm.bias"),
];

/// A published GPT-2, described.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpt2Folder {
    /// Its sizes.
    pub shape: GptShape,
    /// One block.
    pub block: BlockShape,
}

impl Gpt2Folder {
    pub(super) fn read(config: &Settings) -> Result<Self> {
        config.expect_switch("scale_attn_weights", true)?;
        config.expect_switch("scale_attn_by_inverse_layer_idx", false)?;
        config.expect_switch("add_cross_attention", false)?;
        config.expect_switch("tie_word_embeddings", true)?;
        let width = config.count_or("n_embd", 768)?;
        let shape = GptShape {
            tokens: config.count_or("n_positions", 1024)?,
            vocabulary: config.count_or("vocab_size", 50_257)?,
            width,
            depth: config.count_or("n_layer", 12)?,
            heads: heads(config, "n_head", width)?,
        };
        Ok(Gpt2Folder {
            shape,
            block: BlockShape {
                causal: true,
                epsilon: config.number_or("layer_norm_epsilon", 1e-5)?,
                hidden: config.count_or("n_inner", 4 * width)?,
                gelu: gelu(config, "activation_function", "gelu_new")?,
                ..BlockShape::pre_norm(width, shape.heads)
            },
        })
    }

    pub(super) fn table(&self) -> Table {
        Table {
            prefix: "transformer.",
            body: rows(BODY, self.shape.depth),
            head: Vec::new(),
            // Masks that every length has alike, and the output weights, which are the embeddings.
            unneeded: &["h.{}.attn.bias", "h.{}.attn.masked_bias", "lm_head.weight"],
        }
    }
}
