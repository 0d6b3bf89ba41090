//! Residual networks (He et al. 2016) in their published format, `model_type` resnet. BatchNorm and
//! its statistics are folded into one factor and one term per channel.

use super::{ResNetArchitecture, ResNetBranch, ResNetNorm, ResNetShape, ResNetStem, ResNetStyle};
use crate::error;
use crate::hub_format::json_config::JsonConfig;
use crate::hub_format::{BlockLayout, HubImageNetwork, HubNetwork, LastNorm};
use crate::image_network::ImageArchitecture;
use crate::tensor_map::{TensorLayout, TensorPair, TensorRow, TensorTable, rows};
use serde_json::{Value as Json, json};
use tape::Activation;

const STEM: &[TensorRow] = &[
    TensorRow::same("embedder.embedder.convolution.weight", "stem.conv.weight"),
    TensorRow::with_layout(
        "embedder.embedder.normalization",
        "stem.norm.weight",
        TensorLayout::BatchNormScale,
    ),
    TensorRow::with_layout(
        "embedder.embedder.normalization",
        "stem.norm.bias",
        TensorLayout::BatchNormShift,
    ),
];

/// `{}` is the path of a block, theirs and ours.
// tidy: table
#[rustfmt::skip]
const SHORTCUT: &[TensorRow] = &[
    TensorRow::same("encoder.stages.{}.shortcut.convolution.weight", "blocks.{}.shortcut.conv.weight"),
    TensorRow::with_layout("encoder.stages.{}.shortcut.normalization", "blocks.{}.shortcut.norm.weight", TensorLayout::BatchNormScale),
    TensorRow::with_layout("encoder.stages.{}.shortcut.normalization", "blocks.{}.shortcut.norm.bias", TensorLayout::BatchNormShift),
];

/// The convolutions of a block in order, each with its norm.
const LAYERS: [&[TensorRow]; 3] = [
    &[
        TensorRow::same(
            "encoder.stages.{}.layer.0.convolution.weight",
            "blocks.{}.conv1.weight",
        ),
        TensorRow::with_layout(
            "encoder.stages.{}.layer.0.normalization",
            "blocks.{}.norm1.weight",
            TensorLayout::BatchNormScale,
        ),
        TensorRow::with_layout(
            "encoder.stages.{}.layer.0.normalization",
            "blocks.{}.norm1.bias",
            TensorLayout::BatchNormShift,
        ),
    ],
    &[
        TensorRow::same(
            "encoder.stages.{}.layer.1.convolution.weight",
            "blocks.{}.conv2.weight",
        ),
        TensorRow::with_layout(
            "encoder.stages.{}.layer.1.normalization",
            "blocks.{}.norm2.weight",
            TensorLayout::BatchNormScale,
        ),
        TensorRow::with_layout(
            "encoder.stages.{}.layer.1.normalization",
            "blocks.{}.norm2.bias",
            TensorLayout::BatchNormShift,
        ),
    ],
    &[
        TensorRow::same(
            "encoder.stages.{}.layer.2.convolution.weight",
            "blocks.{}.conv3.weight",
        ),
        TensorRow::with_layout(
            "encoder.stages.{}.layer.2.normalization",
            "blocks.{}.norm3.weight",
            TensorLayout::BatchNormScale,
        ),
        TensorRow::with_layout(
            "encoder.stages.{}.layer.2.normalization",
            "blocks.{}.norm3.bias",
            TensorLayout::BatchNormShift,
        ),
    ],
];

const HEAD: &[TensorRow] = &[
    TensorRow::same("classifier.1.weight", "head.weight"),
    TensorRow::same("classifier.1.bias", "head.bias"),
];

/// A pretrained residual network, described by its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubResNet {
    /// Sizes.
    pub shape: ResNetShape,
    /// Branches and norms.
    pub style: ResNetStyle,
    /// Number of blocks of each stage.
    depths: Vec<usize>,
}

impl HubResNet {
    pub(crate) fn read(config: &JsonConfig) -> error::Result<Self> {
        config.expect_text("hidden_act", &["relu"])?;
        config.expect_text("layer_type", &["bottleneck", "basic"])?;
        if config.count_or("num_channels", 3)? != 3 {
            return Err(config.refuse("Ebb supports only images with 3 channels".to_owned()));
        }
        let widths = config.counts("hidden_sizes", &[256, 512, 1024, 2048])?;
        let depths = config.counts("depths", &[3, 4, 6, 3])?;
        if widths.len() != depths.len() || depths.iter().sum::<usize>() > 10_000 {
            return Err(config.refuse(format!(
                "hidden_sizes {widths:?} and depths {depths:?} do not match"
            )));
        }
        let mut blocks = Vec::new();
        for (stage, (&width, &depth)) in widths.iter().zip(&depths).enumerate() {
            let strided = stage > 0 || config.bool_or("downsample_in_first_stage", false);
            let first = if strided { 2 } else { 1 };
            blocks.extend((0..depth).map(|i| (width, if i == 0 { first } else { 1 })));
        }
        let branch = match config.text("layer_type", "bottleneck") {
            "basic" => ResNetBranch::Basic,
            _ if widths.iter().any(|width| width % 4 != 0) => {
                return Err(config.refuse(format!(
                    "hidden_sizes {widths:?} must be multiples of 4, because the network has bottleneck blocks"
                )));
            }
            _ => ResNetBranch::Bottleneck {
                strided: usize::from(!config.bool_or("downsample_in_bottleneck", false)),
            },
        };
        Ok(HubResNet {
            shape: ResNetShape {
                stem: ResNetStem::Pooled,
                channels: config.count_or("embedding_size", 64)?,
                blocks,
                groups: 1,
                activation: Activation::Relu,
            },
            style: ResNetStyle {
                branch,
                norm: ResNetNorm::Frozen,
            },
            depths,
        })
    }
}

impl HubNetwork for HubResNet {
    fn table(&self) -> TensorTable {
        let convolutions = match self.style.branch {
            ResNetBranch::Basic => 2,
            ResNetBranch::Bottleneck { .. } => 3,
        };
        let mut body = rows(STEM, 0);
        let mut inputs = self.shape.channels;
        let places = (0..).zip(&self.depths).flat_map(|(stage, &depth)| {
            (0..depth).map(move |layer| format!("{stage}.layers.{layer}"))
        });
        for (block, (place, &(outputs, stride))) in places.zip(&self.shape.blocks).enumerate() {
            let ours = block.to_string();
            let mut add = |rows: &[TensorRow]| {
                let named = rows.iter().map(|row| row.filled(&place, &ours));
                body.extend(named.collect::<Vec<TensorPair>>());
            };
            LAYERS[..convolutions].iter().for_each(|rows| add(rows));
            if stride != 1 || inputs != outputs {
                add(SHORTCUT);
            }
            inputs = outputs;
        }
        TensorTable {
            prefix: "resnet.",
            body,
            head: rows(HEAD, 0),
            unneeded: &[
                "embedder.embedder.normalization.num_batches_tracked",
                "encoder.stages.{}.layers.{}.layer.{}.normalization.num_batches_tracked",
                "encoder.stages.{}.layers.{}.shortcut.normalization.num_batches_tracked",
            ],
        }
    }

    fn blocks(&self) -> BlockLayout {
        BlockLayout {
            count: self.shape.blocks.len(),
            last_norm: LastNorm::AfterBlocks,
            has_embedding_table: false,
        }
    }

    fn has_linear_blocks(&self) -> bool {
        false
    }

    fn estimated_parameters(&self) -> f64 {
        let blocks = self.shape.blocks.iter();
        blocks.map(|(width, _)| *width as f64 * *width as f64).sum()
    }
}

impl HubImageNetwork for HubResNet {
    fn architecture(
        &self,
        _side: Option<usize>,
        _is_new_head: bool,
    ) -> Result<Box<dyn ImageArchitecture>, String> {
        Ok(Box::new(ResNetArchitecture {
            shape: self.shape.clone(),
            style: self.style,
        }))
    }

    fn transformers_class(&self) -> &'static str {
        "ResNetForImageClassification"
    }
}

/// `config.json` of a residual network with GroupNorm, for `modeling_ebb.py`.
pub(super) fn resnet_config(shape: &ResNetShape, branch: ResNetBranch) -> Json {
    json!({
        "architectures": ["EbbResNetForImageClassification"],
        "auto_map": {
            "AutoConfig": "modeling_ebb.EbbResNetConfig",
            "AutoModelForImageClassification": "modeling_ebb.EbbResNetForImageClassification",
        },
        "model_type": "ebb_resnet",
        "stem": match shape.stem {
            ResNetStem::Plain => "plain",
            ResNetStem::Pooled => "pooled",
        },
        "channels": shape.channels,
        "blocks": shape.blocks,
        "groups": shape.groups,
        "branch": match branch {
            ResNetBranch::Basic => "basic",
            ResNetBranch::Bottleneck { .. } => "bottleneck",
        },
        "hidden_act": match shape.activation {
            Activation::Gelu => "gelu",
            Activation::Relu | Activation::None => "relu",
        },
    })
}
