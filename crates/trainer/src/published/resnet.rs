//! Residual networks (He et al. 2016) as they are published: `model_type` resnet. Their BatchNorm keeps the statistics that
//! it was published with, folded into one factor and one term a channel.

use super::names::{Named, Row, Table, Take, rows};
use super::settings::Settings;
use crate::error::Result;
use crate::models::{Branch, ResNetNorm, ResNetShape, ResNetStyle, Stem};
use tape::Activation;

/// What PyTorch's BatchNorm adds to a variance; the format has no setting for it.
pub(super) const EPSILON: f64 = 1e-5;

const STEM: &[Row] = &[
    Row::same("embedder.embedder.convolution.weight", "stem.conv.weight"),
    Row::taking(
        "embedder.embedder.normalization",
        "stem.norm.weight",
        Take::FrozenScale,
    ),
    Row::taking(
        "embedder.embedder.normalization",
        "stem.norm.bias",
        Take::FrozenShift,
    ),
];

/// `{}` is the place of a block, published and Ebb's.
const SHORTCUT: &[Row] = &[
    Row::same(
        "encoder.stages.{}.shortcut.convolution.weight",
        "blocks.{}.shortcut.conv.weight",
    ),
    Row::taking(
        "encoder.stages.{}.shortcut.normalization",
        "blocks.{}.shortcut.norm.weight",
        Take::FrozenScale,
    ),
    Row::taking(
        "encoder.stages.{}.shortcut.normalization",
        "blocks.{}.shortcut.norm.bias",
        Take::FrozenShift,
    ),
];

/// The convolutions of a block in order, each with its norm.
const LAYERS: [&[Row]; 3] = [
    &[
        Row::same(
            "encoder.stages.{}.layer.0.convolution.weight",
            "blocks.{}.conv1.weight",
        ),
        Row::taking(
            "encoder.stages.{}.layer.0.normalization",
            "blocks.{}.norm1.weight",
            Take::FrozenScale,
        ),
        Row::taking(
            "encoder.stages.{}.layer.0.normalization",
            "blocks.{}.norm1.bias",
            Take::FrozenShift,
        ),
    ],
    &[
        Row::same(
            "encoder.stages.{}.layer.1.convolution.weight",
            "blocks.{}.conv2.weight",
        ),
        Row::taking(
            "encoder.stages.{}.layer.1.normalization",
            "blocks.{}.norm2.weight",
            Take::FrozenScale,
        ),
        Row::taking(
            "encoder.stages.{}.layer.1.normalization",
            "blocks.{}.norm2.bias",
            Take::FrozenShift,
        ),
    ],
    &[
        Row::same(
            "encoder.stages.{}.layer.2.convolution.weight",
            "blocks.{}.conv3.weight",
        ),
        Row::taking(
            "encoder.stages.{}.layer.2.normalization",
            "blocks.{}.norm3.weight",
            Take::FrozenScale,
        ),
        Row::taking(
            "encoder.stages.{}.layer.2.normalization",
            "blocks.{}.norm3.bias",
            Take::FrozenShift,
        ),
    ],
];

const HEAD: &[Row] = &[
    Row::same("classifier.1.weight", "head.weight"),
    Row::same("classifier.1.bias", "head.bias"),
];

/// A published residual network, described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResNetFolder {
    /// Its sizes.
    pub shape: ResNetShape,
    /// What it is made of.
    pub style: ResNetStyle,
    /// Blocks of each stage.
    depths: Vec<usize>,
}

impl ResNetFolder {
    pub(super) fn read(config: &Settings) -> Result<Self> {
        config.expect_word("hidden_act", &["relu"])?;
        config.expect_word("layer_type", &["bottleneck", "basic"])?;
        if config.count_or("num_channels", 3)? != 3 {
            return Err(config.refuse("its images have not 3 channels".to_owned()));
        }
        let widths = config.counts("hidden_sizes", &[256, 512, 1024, 2048])?;
        let depths = config.counts("depths", &[3, 4, 6, 3])?;
        if widths.len() != depths.len() || depths.iter().sum::<usize>() > 10_000 {
            return Err(config.refuse(format!(
                "hidden_sizes {widths:?} and depths {depths:?} do not go together"
            )));
        }
        let mut blocks = Vec::new();
        for (stage, (&width, &depth)) in widths.iter().zip(&depths).enumerate() {
            let strided = stage > 0 || config.is_on("downsample_in_first_stage", false);
            let first = if strided { 2 } else { 1 };
            blocks.extend((0..depth).map(|i| (width, if i == 0 { first } else { 1 })));
        }
        let branch = match config.word("layer_type", "bottleneck") {
            "basic" => Branch::Basic,
            _ if widths.iter().any(|width| width % 4 != 0) => {
                return Err(config.refuse(format!(
                    "hidden_sizes {widths:?} cannot be quartered for bottlenecks"
                )));
            }
            _ => Branch::Bottleneck {
                strided: usize::from(!config.is_on("downsample_in_bottleneck", false)),
            },
        };
        Ok(ResNetFolder {
            shape: ResNetShape {
                stem: Stem::Pooled,
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

    pub(super) fn table(&self) -> Table {
        let convolutions = match self.style.branch {
            Branch::Basic => 2,
            Branch::Bottleneck { .. } => 3,
        };
        let mut body = rows(STEM, 0);
        let mut inputs = self.shape.channels;
        let places = (0..).zip(&self.depths).flat_map(|(stage, &depth)| {
            (0..depth).map(move |layer| format!("{stage}.layers.{layer}"))
        });
        for (block, (place, &(outputs, stride))) in places.zip(&self.shape.blocks).enumerate() {
            let ours = block.to_string();
            let mut add = |rows: &[Row]| {
                let named = rows.iter().map(|row| row.named(&place, Some(&ours)));
                body.extend(named.collect::<Vec<Named>>());
            };
            LAYERS[..convolutions].iter().for_each(|rows| add(rows));
            if stride != 1 || inputs != outputs {
                add(SHORTCUT);
            }
            inputs = outputs;
        }
        Table {
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
}
