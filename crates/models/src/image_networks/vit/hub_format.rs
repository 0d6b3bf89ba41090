//! Vision transformers in their published format, `model_type` vit, deit or dinov2.

use super::{VitArchitecture, VitPooling, VitShape, VitStyle, VitTokens};
use crate::error;
use crate::hub_format::json_config::JsonConfig;
use crate::hub_format::safetensors_reader::TensorIndex;
use crate::hub_format::{
    BlockLayout, HubImageNetwork, HubNetwork, ImageInput, LastNorm, block_parameters,
};
use crate::image_network::ImageArchitecture;
use crate::tensor_map::{CLASSIFIER, TensorLayout, TensorRow, TensorTable, rows};
use crate::transformer::{BlockShape, ResidualScale};
use serde_json::{Value as Json, json};

// tidy: table
#[rustfmt::skip]
const STEM: &[TensorRow] = &[
    TensorRow::with_layout("embeddings.cls_token", "class_token", TensorLayout::LeadingOnes(2)),
    TensorRow::with_layout("embeddings.patch_embeddings.projection.weight", "patch.weight", TensorLayout::PatchConvolution),
    TensorRow::same("embeddings.patch_embeddings.projection.bias", "patch.bias"),
    TensorRow::same("layernorm.weight", "norm.weight"),
    TensorRow::same("layernorm.bias", "norm.bias"),
];

// tidy: table
#[rustfmt::skip]
const ATTENTION: &[TensorRow] = &[
    TensorRow::with_layout("encoder.layer.{}.attention.attention.query.weight", "blocks.{}.qkv.weight", TensorLayout::PartOfOurs(0)),
    TensorRow::with_layout("encoder.layer.{}.attention.attention.key.weight", "blocks.{}.qkv.weight", TensorLayout::PartOfOurs(1)),
    TensorRow::with_layout("encoder.layer.{}.attention.attention.value.weight", "blocks.{}.qkv.weight", TensorLayout::PartOfOurs(2)),
    TensorRow::same("encoder.layer.{}.attention.output.dense.weight", "blocks.{}.projection.weight"),
    TensorRow::same("encoder.layer.{}.attention.output.dense.bias", "blocks.{}.projection.bias"),
];

// tidy: table
#[rustfmt::skip]
const ATTENTION_BIASES: &[TensorRow] = &[
    TensorRow::same("encoder.layer.{}.attention.attention.query.bias", "blocks.{}.query.bias"),
    TensorRow::with_layout("encoder.layer.{}.attention.attention.key.bias", "blocks.{}.query.bias", TensorLayout::Unused),
    TensorRow::same("encoder.layer.{}.attention.attention.value.bias", "blocks.{}.value.bias"),
];

// tidy: table
#[rustfmt::skip]
const VIT: &[TensorRow] = &[
    TensorRow::same("encoder.layer.{}.layernorm_before.weight", "blocks.{}.norm1.weight"),
    TensorRow::same("encoder.layer.{}.layernorm_before.bias", "blocks.{}.norm1.bias"),
    TensorRow::same("encoder.layer.{}.layernorm_after.weight", "blocks.{}.norm2.weight"),
    TensorRow::same("encoder.layer.{}.layernorm_after.bias", "blocks.{}.norm2.bias"),
    TensorRow::same("encoder.layer.{}.intermediate.dense.weight", "blocks.{}.up.weight"),
    TensorRow::same("encoder.layer.{}.intermediate.dense.bias", "blocks.{}.up.bias"),
    TensorRow::same("encoder.layer.{}.output.dense.weight", "blocks.{}.down.weight"),
    TensorRow::same("encoder.layer.{}.output.dense.bias", "blocks.{}.down.bias"),
];

const DINOV2: &[TensorRow] = &[
    TensorRow::same("encoder.layer.{}.norm1.weight", "blocks.{}.norm1.weight"),
    TensorRow::same("encoder.layer.{}.norm1.bias", "blocks.{}.norm1.bias"),
    TensorRow::same("encoder.layer.{}.norm2.weight", "blocks.{}.norm2.weight"),
    TensorRow::same("encoder.layer.{}.norm2.bias", "blocks.{}.norm2.bias"),
    TensorRow::same("encoder.layer.{}.mlp.fc1.weight", "blocks.{}.up.weight"),
    TensorRow::same("encoder.layer.{}.mlp.fc1.bias", "blocks.{}.up.bias"),
    TensorRow::same("encoder.layer.{}.mlp.fc2.weight", "blocks.{}.down.weight"),
    TensorRow::same("encoder.layer.{}.mlp.fc2.bias", "blocks.{}.down.bias"),
    TensorRow::same("encoder.layer.{}.layer_scale1.lambda1", "blocks.{}.scale1"),
    TensorRow::same("encoder.layer.{}.layer_scale2.lambda1", "blocks.{}.scale2"),
];

const DISTILLATION_TOKEN: &[TensorRow] = &[TensorRow::with_layout(
    "embeddings.distillation_token",
    "teacher_token",
    TensorLayout::LeadingOnes(2),
)];

const DISTILLATION_HEADS: &[TensorRow] = &[
    TensorRow::same("cls_classifier.weight", "head.weight"),
    TensorRow::same("cls_classifier.bias", "head.bias"),
    TensorRow::same("distillation_classifier.weight", "teacher_head.weight"),
    TensorRow::same("distillation_classifier.bias", "teacher_head.bias"),
];

/// Kinds of vision transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VitFamily {
    /// Dosovitskiy et al. 2021.
    Vit,
    /// Touvron et al. 2021: with a distillation token.
    Deit,
    /// Oquab et al. 2023: with LayerScale; the head reads the class token and the mean patch.
    Dinov2,
}

/// A pretrained vision transformer, described by its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct HubVit {
    pub family: VitFamily,
    /// Sizes, as published.
    pub shape: VitShape,
    /// Blocks, extra tokens and pooling.
    pub style: VitStyle,
    /// Whether queries, keys and values have biases.
    has_attention_biases: bool,
}

impl HubVit {
    /// Describes a transformer that was trained from scratch.
    pub(super) fn from_scratch(shape: VitShape, style: VitStyle) -> Self {
        HubVit {
            family: VitFamily::Vit,
            shape,
            style,
            has_attention_biases: true,
        }
    }

    pub(crate) fn read(
        family: VitFamily,
        config: &JsonConfig,
        tensors: &TensorIndex,
    ) -> error::Result<Self> {
        config.expect_bool("use_swiglu_ffn", false)?;
        if config.count_or("num_channels", 3)? != 3 {
            return Err(config.refuse("Ebb supports only images with 3 channels".to_owned()));
        }
        let width = config.count("hidden_size")?;
        let default_patch = if family == VitFamily::Dinov2 { 14 } else { 16 };
        let shape = VitShape {
            image: config.count_or("image_size", 224)?,
            patch: config.count_or("patch_size", default_patch)?,
            width,
            depth: config.count("num_hidden_layers")?,
            heads: config.heads("num_attention_heads", width)?,
        };
        if !shape.image.is_multiple_of(shape.patch) {
            return Err(config.refuse(format!(
                "image_size {} is not a multiple of patch_size {}",
                shape.image, shape.patch
            )));
        }
        let (hidden, epsilon) = match family {
            VitFamily::Dinov2 => {
                let ratio = config.positive_or("mlp_ratio", 4.0)?;
                ((width as f64 * ratio) as usize, 1e-6)
            }
            _ => (config.count("intermediate_size")?, 1e-12),
        };
        let block = BlockShape {
            epsilon: config.positive_or("layer_norm_eps", epsilon)?,
            hidden,
            gelu: config.gelu("hidden_act", "gelu")?,
            scale: match family {
                VitFamily::Dinov2 => ResidualScale::PerChannel,
                _ => ResidualScale::None,
            },
            ..BlockShape::pre_norm(width, shape.heads)
        };
        let has_distillation_head = tensors.shape("distillation_classifier.weight").is_some();
        Ok(HubVit {
            family,
            shape,
            style: VitStyle {
                block,
                tokens: match family {
                    VitFamily::Deit => VitTokens::ClassAndDistillation,
                    _ => VitTokens::Class,
                },
                pooling: match family {
                    VitFamily::Dinov2 => VitPooling::ClassAndMean,
                    VitFamily::Deit if has_distillation_head => VitPooling::ClassAndDistillation,
                    _ => VitPooling::Class,
                },
            },
            has_attention_biases: config.bool_or("qkv_bias", true),
        })
    }

    /// Without the distillation head, which a new head replaces.
    fn with_new_head(&self) -> Self {
        let mut vit = self.clone();
        if vit.style.pooling == VitPooling::ClassAndDistillation {
            vit.style.pooling = VitPooling::Class;
        }
        vit
    }
}

impl HubNetwork for HubVit {
    fn table(&self) -> TensorTable {
        let depth = self.shape.depth;
        let before = match self.style.tokens {
            VitTokens::Class => 1,
            VitTokens::ClassAndDistillation => 2,
        };
        let from = self.shape.image / self.shape.patch;
        let positions = TensorRow::with_layout(
            "embeddings.position_embeddings",
            "positions",
            TensorLayout::PositionGrid { before, from },
        );
        let (prefix, family) = match self.family {
            VitFamily::Vit => ("vit.", VIT),
            VitFamily::Deit => ("deit.", VIT),
            VitFamily::Dinov2 => ("dinov2.", DINOV2),
        };
        let mut body = rows(STEM, 0);
        body.extend(rows(&[positions], 0));
        body.extend(rows(ATTENTION, depth));
        body.extend(rows(family, depth));
        if self.has_attention_biases {
            body.extend(rows(ATTENTION_BIASES, depth));
        }
        if self.style.tokens == VitTokens::ClassAndDistillation {
            body.extend(rows(DISTILLATION_TOKEN, 0));
        }
        TensorTable {
            prefix,
            body,
            head: match self.style.pooling {
                VitPooling::ClassAndDistillation => rows(DISTILLATION_HEADS, 0),
                VitPooling::Class | VitPooling::ClassAndMean => rows(CLASSIFIER, 0),
            },
            unneeded: &[
                "embeddings.mask_token",
                "pooler.*",
                "cls_classifier.*",
                "distillation_classifier.*",
            ],
        }
    }

    fn blocks(&self) -> BlockLayout {
        BlockLayout {
            count: self.shape.depth,
            last_norm: LastNorm::AfterBlocks,
            has_embedding_table: false,
        }
    }

    fn image_input(&self) -> ImageInput {
        ImageInput {
            default_side: self.shape.image,
            multiple: self.shape.patch,
        }
    }

    fn total_width(&self) -> usize {
        self.shape.width * self.shape.depth
    }

    fn estimated_parameters(&self) -> f64 {
        let VitShape {
            image,
            patch,
            width,
            depth,
            ..
        } = self.shape;
        let positions = (image / patch) as f64 * (image / patch) as f64;
        (positions + 3.0 * patch as f64 * patch as f64) * width as f64
            + block_parameters(depth, &self.style.block)
    }
}

impl HubImageNetwork for HubVit {
    fn architecture(
        &self,
        side: Option<usize>,
        is_new_head: bool,
    ) -> Result<Box<dyn ImageArchitecture>, String> {
        let shape = VitShape {
            image: side.unwrap_or(self.shape.image),
            ..self.shape
        };
        if shape.image == 0 || !shape.image.is_multiple_of(shape.patch) {
            return Err(format!(
                "images of {} px cannot be cut into patches of {1} px; choose a multiple of {1}",
                shape.image, shape.patch
            ));
        }
        let style = if is_new_head {
            self.with_new_head().style
        } else {
            self.style
        };
        Ok(Box::new(VitArchitecture { shape, style }))
    }

    fn fine_tuned_table(&self, side: usize) -> TensorTable {
        let mut vit = self.with_new_head();
        vit.shape.image = side;
        vit.table()
    }

    fn transformers_class(&self) -> &'static str {
        match self.family {
            VitFamily::Vit => "ViTForImageClassification",
            VitFamily::Deit => "DeiTForImageClassification",
            VitFamily::Dinov2 => "Dinov2ForImageClassification",
        }
    }

    fn set_side(&self, config: &mut Json, side: usize) {
        config["image_size"] = json!(side);
    }
}

/// `config.json` of a vision transformer trained from scratch: transformers' own `vit`.
pub(super) fn vit_config(shape: VitShape) -> Json {
    let style = VitStyle::from_scratch(shape);
    json!({
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": shape.heads,
        "intermediate_size": style.block.hidden,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": style.block.epsilon,
        "image_size": shape.image,
        "patch_size": shape.patch,
        "num_channels": 3,
        "qkv_bias": true,
        "encoder_stride": shape.patch,
    })
}
