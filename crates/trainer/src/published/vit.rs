//! Vision transformers as they are published: `model_type` vit, deit or dinov2.

use super::bert::HEAD;
use super::names::{Row, Table, Take, rows};
use super::settings::Settings;
use super::tensors::Tensors;
use super::{gelu, heads};
use crate::error::Result;
use crate::models::{BlockShape, Branches, VitReads, VitShape, VitStyle, VitTokens};

const ENTRANCE: &[Row] = &[
    Row::taking("embeddings.cls_token", "class_token", Take::Ones(2)),
    Row::taking(
        "embeddings.patch_embeddings.projection.weight",
        "patch.weight",
        Take::Patches,
    ),
    Row::same("embeddings.patch_embeddings.projection.bias", "patch.bias"),
    Row::same("layernorm.weight", "norm.weight"),
    Row::same("layernorm.bias", "norm.bias"),
];

const ATTENTION: &[Row] = &[
    Row::taking(
        "encoder.layer.{}.attention.attention.query.weight",
        "blocks.{}.qkv.weight",
        Take::Third(0),
    ),
    Row::taking(
        "encoder.layer.{}.attention.attention.key.weight",
        "blocks.{}.qkv.weight",
        Take::Third(1),
    ),
    Row::taking(
        "encoder.layer.{}.attention.attention.value.weight",
        "blocks.{}.qkv.weight",
        Take::Third(2),
    ),
    Row::same(
        "encoder.layer.{}.attention.output.dense.weight",
        "blocks.{}.projection.weight",
    ),
    Row::same(
        "encoder.layer.{}.attention.output.dense.bias",
        "blocks.{}.projection.bias",
    ),
];

const ATTENTION_BIASES: &[Row] = &[
    Row::same(
        "encoder.layer.{}.attention.attention.query.bias",
        "blocks.{}.query.bias",
    ),
    Row::taking(
        "encoder.layer.{}.attention.attention.key.bias",
        "blocks.{}.query.bias",
        Take::Unseen,
    ),
    Row::same(
        "encoder.layer.{}.attention.attention.value.bias",
        "blocks.{}.value.bias",
    ),
];

const VIT: &[Row] = &[
    Row::same(
        "encoder.layer.{}.layernorm_before.weight",
        "blocks.{}.norm1.weight",
    ),
    Row::same(
        "encoder.layer.{}.layernorm_before.bias",
        "blocks.{}.norm1.bias",
    ),
    Row::same(
        "encoder.layer.{}.layernorm_after.weight",
        "blocks.{}.norm2.weight",
    ),
    Row::same(
        "encoder.layer.{}.layernorm_after.bias",
        "blocks.{}.norm2.bias",
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
];

const DINOV2: &[Row] = &[
    Row::same("encoder.layer.{}.norm1.weight", "blocks.{}.norm1.weight"),
    Row::same("encoder.layer.{}.norm1.bias", "blocks.{}.norm1.bias"),
    Row::same("encoder.layer.{}.norm2.weight", "blocks.{}.norm2.weight"),
    Row::same("encoder.layer.{}.norm2.bias", "blocks.{}.norm2.bias"),
    Row::same("encoder.layer.{}.mlp.fc1.weight", "blocks.{}.up.weight"),
    Row::same("encoder.layer.{}.mlp.fc1.bias", "blocks.{}.up.bias"),
    Row::same("encoder.layer.{}.mlp.fc2.weight", "blocks.{}.down.weight"),
    Row::same("encoder.layer.{}.mlp.fc2.bias", "blocks.{}.down.bias"),
    Row::same("encoder.layer.{}.layer_scale1.lambda1", "blocks.{}.scale1"),
    Row::same("encoder.layer.{}.layer_scale2.lambda1", "blocks.{}.scale2"),
];

const TEACHER_TOKEN: &[Row] = &[Row::taking(
    "embeddings.distillation_token",
    "teacher_token",
    Take::Ones(2),
)];

const TEACHER_HEADS: &[Row] = &[
    Row::same("cls_classifier.weight", "head.weight"),
    Row::same("cls_classifier.bias", "head.bias"),
    Row::same("distillation_classifier.weight", "teacher_head.weight"),
    Row::same("distillation_classifier.bias", "teacher_head.bias"),
];

/// Which of them it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VitFamily {
    /// Dosovitskiy et al. 2021.
    Vit,
    /// Touvron et al. 2021: with a second token.
    Deit,
    /// Oquab et al. 2023: scaled branches; the classes are told from the class token and the mean patch.
    Dinov2,
}

/// A published vision transformer, described.
#[derive(Debug, Clone, PartialEq)]
pub struct VitFolder {
    /// Which of them it is.
    pub family: VitFamily,
    /// Its sizes, as published.
    pub shape: VitShape,
    /// What it is made of.
    pub style: VitStyle,
    /// Its queries, keys and values have biases.
    biases: Biases,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Biases {
    Published,
    None,
}

impl VitFolder {
    /// A transformer of Ebb's own, as it would be published.
    pub(super) fn own(shape: VitShape, style: VitStyle) -> Self {
        VitFolder {
            family: VitFamily::Vit,
            shape,
            style,
            biases: Biases::Published,
        }
    }

    pub(super) fn read(family: VitFamily, config: &Settings, tensors: &Tensors) -> Result<Self> {
        config.expect_switch("use_swiglu_ffn", false)?;
        if config.count_or("num_channels", 3)? != 3 {
            return Err(config.refuse("its images have not 3 channels".to_owned()));
        }
        let width = config.count("hidden_size")?;
        let shape = VitShape {
            image: config.count_or("image_size", 224)?,
            patch: config.count_or(
                "patch_size",
                if family == VitFamily::Dinov2 { 14 } else { 16 },
            )?,
            width,
            depth: config.count("num_hidden_layers")?,
            heads: heads(config, "num_attention_heads", width)?,
        };
        if !shape.image.is_multiple_of(shape.patch) {
            return Err(config.refuse(format!(
                "its images of {} px are no multiple of its patches of {}",
                shape.image, shape.patch
            )));
        }
        let (hidden, epsilon) = match family {
            VitFamily::Dinov2 => {
                let ratio = config.number_or("mlp_ratio", 4.0)?;
                ((width as f64 * ratio) as usize, 1e-6)
            }
            _ => (config.count("intermediate_size")?, 1e-12),
        };
        let block = BlockShape {
            epsilon: config.number_or("layer_norm_eps", epsilon)?,
            hidden,
            gelu: gelu(config, "hidden_act", "gelu")?,
            branches: match family {
                VitFamily::Dinov2 => Branches::Scaled,
                _ => Branches::Plain,
            },
            ..BlockShape::pre_norm(width, shape.heads)
        };
        let taught = tensors.shape("distillation_classifier.weight").is_some();
        Ok(VitFolder {
            family,
            shape,
            style: VitStyle {
                block,
                tokens: match family {
                    VitFamily::Deit => VitTokens::ClassAndTeacher,
                    _ => VitTokens::Class,
                },
                reads: match family {
                    VitFamily::Dinov2 => VitReads::ClassAndMean,
                    VitFamily::Deit if taught => VitReads::ClassAndTeacher,
                    _ => VitReads::Class,
                },
            },
            biases: match config.is_on("qkv_bias", true) {
                true => Biases::Published,
                false => Biases::None,
            },
        })
    }

    /// What transformers calls its classifier.
    pub(super) fn class(&self) -> &'static str {
        match self.family {
            VitFamily::Vit => "ViTForImageClassification",
            VitFamily::Deit => "DeiTForImageClassification",
            VitFamily::Dinov2 => "Dinov2ForImageClassification",
        }
    }

    /// The table of its own head.
    pub(super) fn table(&self) -> Table {
        let depth = self.shape.depth;
        let before = match self.style.tokens {
            VitTokens::Class => 1,
            VitTokens::ClassAndTeacher => 2,
        };
        let from = self.shape.image / self.shape.patch;
        let positions = Row::taking(
            "embeddings.position_embeddings",
            "positions",
            Take::Grid { before, from },
        );
        let (prefix, family) = match self.family {
            VitFamily::Vit => ("vit.", VIT),
            VitFamily::Deit => ("deit.", VIT),
            VitFamily::Dinov2 => ("dinov2.", DINOV2),
        };
        let mut body = rows(ENTRANCE, 0);
        body.extend(rows(&[positions], 0));
        body.extend(rows(ATTENTION, depth));
        body.extend(rows(family, depth));
        if self.biases == Biases::Published {
            body.extend(rows(ATTENTION_BIASES, depth));
        }
        if self.style.tokens == VitTokens::ClassAndTeacher {
            body.extend(rows(TEACHER_TOKEN, 0));
        }
        Table {
            prefix,
            body,
            head: match self.style.reads {
                VitReads::ClassAndTeacher => rows(TEACHER_HEADS, 0),
                VitReads::Class | VitReads::ClassAndMean => rows(HEAD, 0),
            },
            unneeded: &[
                "embeddings.mask_token",
                "pooler.*",
                "cls_classifier.*",
                "distillation_classifier.*",
            ],
        }
    }
}
