//! GPT-2 (Radford et al. 2019) in its published format, `model_type` gpt2. Linear maps are stored
//! as [inputs, outputs], queries, keys and values are one map, and the output weights are the
//! embeddings.

use super::fine_tuning::{BlockLayout, LastNorm};
use super::hub_network::{HubNetwork, TextLimits, block_parameters, text_parameters};
use super::json_config::JsonConfig;
use crate::error::Result;
use crate::tensor_map::{TensorLayout, TensorRow, TensorTable, rows};
use crate::text_backbone::SequenceShape;
use crate::transformer::BlockShape;

// tidy: table
#[rustfmt::skip]
const BODY: &[TensorRow] = &[
    TensorRow::same("wte.weight", "embedding.weight"),
    TensorRow::same("wpe.weight", "positions"),
    TensorRow::same("h.{}.ln_1.weight", "blocks.{}.norm1.weight"),
    TensorRow::same("h.{}.ln_1.bias", "blocks.{}.norm1.bias"),
    TensorRow::with_layout("h.{}.attn.c_attn.weight", "blocks.{}.qkv.weight", TensorLayout::Transposed),
    TensorRow::with_layout("h.{}.attn.c_attn.bias", "blocks.{}.query.bias", TensorLayout::PartOfTheirs(0)),
    TensorRow::with_layout("h.{}.attn.c_attn.bias", "blocks.{}.value.bias", TensorLayout::PartOfTheirs(2)),
    TensorRow::with_layout("h.{}.attn.c_proj.weight", "blocks.{}.projection.weight", TensorLayout::Transposed),
    TensorRow::same("h.{}.attn.c_proj.bias", "blocks.{}.projection.bias"),
    TensorRow::same("h.{}.ln_2.weight", "blocks.{}.norm2.weight"),
    TensorRow::same("h.{}.ln_2.bias", "blocks.{}.norm2.bias"),
    TensorRow::with_layout("h.{}.mlp.c_fc.weight", "blocks.{}.up.weight", TensorLayout::Transposed),
    TensorRow::same("h.{}.mlp.c_fc.bias", "blocks.{}.up.bias"),
    TensorRow::with_layout("h.{}.mlp.c_proj.weight", "blocks.{}.down.weight", TensorLayout::Transposed),
    TensorRow::same("h.{}.mlp.c_proj.bias", "blocks.{}.down.bias"),
    TensorRow::same("ln_f.weight", "norm.weight"),
    TensorRow::same("ln_f.bias", "norm.bias"),
];

/// A pretrained GPT-2, described by its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct HubGpt2 {
    /// Sizes.
    pub shape: SequenceShape,
    pub block: BlockShape,
}

impl HubGpt2 {
    pub(crate) fn read(config: &JsonConfig) -> Result<Self> {
        config.expect_bool("scale_attn_weights", true)?;
        config.expect_bool("scale_attn_by_inverse_layer_idx", false)?;
        config.expect_bool("add_cross_attention", false)?;
        config.expect_bool("tie_word_embeddings", true)?;
        let width = config.count_or("n_embd", 768)?;
        let shape = SequenceShape {
            tokens: config.count_or("n_positions", 1024)?,
            vocabulary: config.count_or("vocab_size", 50_257)?,
            width,
            depth: config.count_or("n_layer", 12)?,
            heads: config.heads("n_head", width)?,
        };
        Ok(HubGpt2 {
            shape,
            block: BlockShape {
                causal: true,
                epsilon: config.positive_or("layer_norm_epsilon", 1e-5)?,
                hidden: config.count_or("n_inner", 4 * width)?,
                gelu: config.gelu("activation_function", "gelu_new")?,
                ..BlockShape::pre_norm(width, shape.heads)
            },
        })
    }
}

impl HubNetwork for HubGpt2 {
    fn table(&self) -> TensorTable {
        TensorTable {
            prefix: "transformer.",
            body: rows(BODY, self.shape.depth),
            head: Vec::new(),
            // Causal masks, and the output weights, which are the embeddings.
            unneeded: &["h.{}.attn.bias", "h.{}.attn.masked_bias", "lm_head.weight"],
        }
    }

    fn blocks(&self) -> BlockLayout {
        BlockLayout {
            count: self.shape.depth,
            last_norm: LastNorm::AfterBlocks,
            has_embedding_table: false,
        }
    }

    fn text_limits(&self) -> Option<TextLimits> {
        Some(TextLimits::for_shape(&self.shape))
    }

    fn total_width(&self) -> usize {
        self.shape.width * self.shape.depth
    }

    fn has_new_head(&self) -> bool {
        false
    }

    fn estimated_parameters(&self) -> f64 {
        text_parameters(&self.shape) + block_parameters(self.shape.depth, &self.block)
    }
}
