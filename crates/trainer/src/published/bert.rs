//! BERT-type encoders (Devlin et al. 2019) as they are published: `model_type` bert.

use super::names::{Row, Table, Take, rows};
use super::settings::Settings;
use super::tensors::Tensors;
use super::{gelu, heads};
use crate::error::Result;
use crate::models::{BlockShape, Norms, Pooling, SequenceShape, TextEncoderStyle};

const BODY: &[Row] = &[
    Row::same("embeddings.word_embeddings.weight", "embedding.weight"),
    Row::same("embeddings.position_embeddings.weight", "positions"),
    Row::same("embeddings.token_type_embeddings.weight", "kinds"),
    Row::same("embeddings.LayerNorm.weight", "norm.weight"),
    Row::same("embeddings.LayerNorm.bias", "norm.bias"),
    Row::taking(
        "encoder.layer.{}.attention.self.query.weight",
        "blocks.{}.qkv.weight",
        Take::Third(0),
    ),
    Row::taking(
        "encoder.layer.{}.attention.self.key.weight",
        "blocks.{}.qkv.weight",
        Take::Third(1),
    ),
    Row::taking(
        "encoder.layer.{}.attention.self.value.weight",
        "blocks.{}.qkv.weight",
        Take::Third(2),
    ),
    Row::same(
        "encoder.layer.{}.attention.self.query.bias",
        "blocks.{}.query.bias",
    ),
    Row::taking(
        "encoder.layer.{}.attention.self.key.bias",
        "blocks.{}.query.bias",
        Take::Unseen,
    ),
    Row::same(
        "encoder.layer.{}.attention.self.value.bias",
        "blocks.{}.value.bias",
    ),
    Row::same(
        "encoder.layer.{}.attention.output.dense.weight",
        "blocks.{}.projection.weight",
    ),
    Row::same(
        "encoder.layer.{}.attention.output.dense.bias",
        "blocks.{}.projection.bias",
    ),
    Row::same(
        "encoder.layer.{}.attention.output.LayerNorm.weight",
        "blocks.{}.norm1.weight",
    ),
    Row::same(
        "encoder.layer.{}.attention.output.LayerNorm.bias",
        "blocks.{}.norm1.bias",
    ),
    Row::same(
        "encoder.layer.{}.intermediate.dense.weight",
        "blocks.{}.up.weight",
    ),
    Row::same(
        "encoder.layer.{}.intermediate.dense.bias",
        "blocks.{}.up.bias",
    ),
    Row::same(
        "encoder.layer.{}.output.dense.weight",
        "blocks.{}.down.weight",
    ),
    Row::same("encoder.layer.{}.output.dense.bias", "blocks.{}.down.bias"),
    Row::same(
        "encoder.layer.{}.output.LayerNorm.weight",
        "blocks.{}.norm2.weight",
    ),
    Row::same(
        "encoder.layer.{}.output.LayerNorm.bias",
        "blocks.{}.norm2.bias",
    ),
];

const POOLER: &[Row] = &[
    Row::same("pooler.dense.weight", "pooler.weight"),
    Row::same("pooler.dense.bias", "pooler.bias"),
];

pub(super) const HEAD: &[Row] = &[
    Row::same("classifier.weight", "head.weight"),
    Row::same("classifier.bias", "head.bias"),
];

/// A published encoder, described.
#[derive(Debug, Clone, PartialEq)]
pub struct BertFolder {
    /// Its sizes.
    pub shape: SequenceShape,
    /// What it is made of.
    pub style: TextEncoderStyle,
}

impl BertFolder {
    pub(super) fn read(
        config: &Settings,
        pooling: Option<&Settings>,
        tensors: &Tensors,
    ) -> Result<Self> {
        config.expect_word("position_embedding_type", &["absolute"])?;
        config.expect_switch("is_decoder", false)?;
        config.expect_switch("add_cross_attention", false)?;
        let width = config.count("hidden_size")?;
        let shape = SequenceShape {
            tokens: config.count_or("max_position_embeddings", 512)?,
            vocabulary: config.count("vocab_size")?,
            width,
            depth: config.count("num_hidden_layers")?,
            heads: heads(config, "num_attention_heads", width)?,
        };
        let block = BlockShape {
            epsilon: config.number_or("layer_norm_eps", 1e-12)?,
            hidden: config.count("intermediate_size")?,
            gelu: gelu(config, "hidden_act", "gelu")?,
            norms: Norms::After,
            ..BlockShape::pre_norm(width, shape.heads)
        };
        Ok(BertFolder {
            shape,
            style: TextEncoderStyle {
                block,
                kinds: config.count_or("type_vocab_size", 2)?,
                pooling: pooled(pooling, tensors)?,
            },
        })
    }

    pub(super) fn table(&self) -> Table {
        let mut body = rows(BODY, self.shape.depth);
        if self.style.pooling == Pooling::FirstMapped {
            body.extend(rows(POOLER, 0));
        }
        Table {
            prefix: "bert.",
            body,
            head: rows(HEAD, 0),
            unneeded: &[
                "embeddings.position_ids",
                "embeddings.token_type_ids",
                "pooler.*",
                "cls.*",
            ],
        }
    }
}

/// What stands for a text: as a sentence encoder's folder says it, else by the pooler where one was published.
fn pooled(pooling: Option<&Settings>, tensors: &Tensors) -> Result<Pooling> {
    let Some(pooling) = pooling else {
        let pooler = tensors
            .names()
            .any(|name| name.ends_with("pooler.dense.weight"));
        return Ok(if pooler {
            Pooling::FirstMapped
        } else {
            Pooling::Mean
        });
    };
    let on = |way: &str| pooling.is_on(&format!("pooling_mode_{way}"), false);
    let ways = [
        "mean_tokens",
        "cls_token",
        "max_tokens",
        "mean_sqrt_len_tokens",
        "weightedmean_tokens",
        "lasttoken",
    ];
    let chosen: Vec<&str> = ways.into_iter().filter(|way| on(way)).collect();
    match *chosen {
        ["mean_tokens"] => Ok(Pooling::Mean),
        ["cls_token"] => Ok(Pooling::First),
        _ => Err(pooling.refuse(format!(
            "it pools by {}; Ebb pools by mean_tokens or by cls_token",
            chosen.join(" and ")
        ))),
    }
}
