//! BERT encoders (Devlin et al. 2019) in their published format, `model_type` bert.

use super::fine_tuning::{BlockLayout, LastNorm};
use super::hub_network::{HubNetwork, TextLimits, block_parameters, text_parameters};
use super::json_config::JsonConfig;
use super::safetensors_reader::TensorIndex;
use crate::error::Result;
use crate::tensor_map::{CLASSIFIER, TensorLayout, TensorRow, TensorTable, rows};
use crate::text_backbone::SequenceShape;
use crate::text_encoder::{Pooling, TextEncoderStyle};
use crate::transformer::{BlockShape, NormPlacement};
use std::path::Path;

/// How a sentence-transformers folder says which vector represents a text.
pub(super) const POOLING: &str = "1_Pooling/config.json";

// tidy: table
#[rustfmt::skip]
const BODY: &[TensorRow] = &[
    TensorRow::same("embeddings.word_embeddings.weight", "embedding.weight"),
    TensorRow::same("embeddings.position_embeddings.weight", "positions"),
    TensorRow::same("embeddings.token_type_embeddings.weight", "kinds"),
    TensorRow::same("embeddings.LayerNorm.weight", "norm.weight"),
    TensorRow::same("embeddings.LayerNorm.bias", "norm.bias"),
    TensorRow::with_layout("encoder.layer.{}.attention.self.query.weight", "blocks.{}.qkv.weight", TensorLayout::PartOfOurs(0)),
    TensorRow::with_layout("encoder.layer.{}.attention.self.key.weight", "blocks.{}.qkv.weight", TensorLayout::PartOfOurs(1)),
    TensorRow::with_layout("encoder.layer.{}.attention.self.value.weight", "blocks.{}.qkv.weight", TensorLayout::PartOfOurs(2)),
    TensorRow::same("encoder.layer.{}.attention.self.query.bias", "blocks.{}.query.bias"),
    TensorRow::with_layout("encoder.layer.{}.attention.self.key.bias", "blocks.{}.query.bias", TensorLayout::Unused),
    TensorRow::same("encoder.layer.{}.attention.self.value.bias", "blocks.{}.value.bias"),
    TensorRow::same("encoder.layer.{}.attention.output.dense.weight", "blocks.{}.projection.weight"),
    TensorRow::same("encoder.layer.{}.attention.output.dense.bias", "blocks.{}.projection.bias"),
    TensorRow::same("encoder.layer.{}.attention.output.LayerNorm.weight", "blocks.{}.norm1.weight"),
    TensorRow::same("encoder.layer.{}.attention.output.LayerNorm.bias", "blocks.{}.norm1.bias"),
    TensorRow::same("encoder.layer.{}.intermediate.dense.weight", "blocks.{}.up.weight"),
    TensorRow::same("encoder.layer.{}.intermediate.dense.bias", "blocks.{}.up.bias"),
    TensorRow::same("encoder.layer.{}.output.dense.weight", "blocks.{}.down.weight"),
    TensorRow::same("encoder.layer.{}.output.dense.bias", "blocks.{}.down.bias"),
    TensorRow::same("encoder.layer.{}.output.LayerNorm.weight", "blocks.{}.norm2.weight"),
    TensorRow::same("encoder.layer.{}.output.LayerNorm.bias", "blocks.{}.norm2.bias"),
];

const POOLER: &[TensorRow] = &[
    TensorRow::same("pooler.dense.weight", "pooler.weight"),
    TensorRow::same("pooler.dense.bias", "pooler.bias"),
];

/// A pretrained encoder, described by its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct HubBert {
    /// Sizes.
    pub shape: SequenceShape,
    /// Blocks and pooling.
    pub style: TextEncoderStyle,
}

impl HubBert {
    pub(crate) fn read(folder: &Path, config: &JsonConfig, tensors: &TensorIndex) -> Result<Self> {
        let pooling = JsonConfig::read(folder, POOLING)?;
        config.expect_text("position_embedding_type", &["absolute"])?;
        config.expect_bool("is_decoder", false)?;
        config.expect_bool("add_cross_attention", false)?;
        let width = config.count("hidden_size")?;
        let shape = SequenceShape {
            tokens: config.count_or("max_position_embeddings", 512)?,
            vocabulary: config.count("vocab_size")?,
            width,
            depth: config.count("num_hidden_layers")?,
            heads: config.heads("num_attention_heads", width)?,
        };
        let block = BlockShape {
            epsilon: config.positive_or("layer_norm_eps", 1e-12)?,
            hidden: config.count("intermediate_size")?,
            gelu: config.gelu("hidden_act", "gelu")?,
            norms: NormPlacement::After,
            ..BlockShape::pre_norm(width, shape.heads)
        };
        Ok(HubBert {
            shape,
            style: TextEncoderStyle {
                block,
                token_types: config.count_or("type_vocab_size", 2)?,
                pooling: pooling_of(pooling.as_ref(), tensors)?,
            },
        })
    }
}

impl HubNetwork for HubBert {
    fn table(&self) -> TensorTable {
        let mut body = rows(BODY, self.shape.depth);
        if self.style.pooling == Pooling::Pooler {
            body.extend(rows(POOLER, 0));
        }
        TensorTable {
            prefix: "bert.",
            body,
            head: rows(CLASSIFIER, 0),
            unneeded: &[
                "embeddings.position_ids",
                "embeddings.token_type_ids",
                "pooler.*",
                "cls.*",
            ],
        }
    }

    fn blocks(&self) -> BlockLayout {
        BlockLayout {
            count: self.shape.depth,
            last_norm: match self.style.block.norms {
                NormPlacement::After => LastNorm::InBlock,
                NormPlacement::Before => LastNorm::AfterBlocks,
            },
            has_embedding_table: true,
        }
    }

    fn text_limits(&self) -> Option<TextLimits> {
        Some(TextLimits::for_shape(&self.shape))
    }

    fn total_width(&self) -> usize {
        self.shape.width * self.shape.depth
    }

    fn estimated_parameters(&self) -> f64 {
        text_parameters(&self.shape)
            + block_parameters(self.shape.depth, &self.style.block)
            + self.style.token_types as f64 * self.shape.width as f64
    }
}

/// The pooling that a sentence-transformers folder names; otherwise the pooler if there is one,
/// else the mean.
fn pooling_of(pooling: Option<&JsonConfig>, tensors: &TensorIndex) -> Result<Pooling> {
    let Some(pooling) = pooling else {
        let pooler = tensors
            .names()
            .any(|name| name.ends_with("pooler.dense.weight"));
        return Ok(if pooler {
            Pooling::Pooler
        } else {
            Pooling::Mean
        });
    };
    let on = |mode: &str| pooling.bool_or(&format!("pooling_mode_{mode}"), false);
    let modes = [
        "mean_tokens",
        "cls_token",
        "max_tokens",
        "mean_sqrt_len_tokens",
        "weightedmean_tokens",
        "lasttoken",
    ];
    let chosen: Vec<&str> = modes.into_iter().filter(|mode| on(mode)).collect();
    match *chosen {
        ["mean_tokens"] => Ok(Pooling::Mean),
        ["cls_token"] => Ok(Pooling::First),
        _ => Err(pooling.refuse(format!(
            "the pooling mode is {}, but Ebb supports only mean_tokens and cls_token",
            chosen.join(" and ")
        ))),
    }
}
