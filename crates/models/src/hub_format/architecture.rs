//! The formats of pretrained weights that Ebb reads: one row of [`FORMATS`] for each `model_type`.

use super::bert::HubBert;
use super::fine_tuning::BlockLayout;
use super::gpt2::HubGpt2;
use super::json_config::JsonConfig;
use super::resnet::HubResNet;
use super::tensor_index::TensorIndex;
use super::tensor_map::TensorTable;
use super::vit::{HubVit, VitFamily};
use crate::backbone::SequenceShape;
use crate::catalog::PretrainedFamily;
use crate::error::Result;
use crate::transformer::BlockShape;
use std::path::Path;

/// A pretrained network, described by its folder.
#[derive(Debug, Clone, PartialEq)]
pub enum HubArchitecture {
    /// A BERT encoder.
    Bert(HubBert),
    /// A vision transformer.
    Vit(HubVit),
    /// A residual network with frozen BatchNorm.
    ResNet(HubResNet),
    /// A GPT-2.
    Gpt2(HubGpt2),
}

/// Reads the description of a network from its folder, `config.json` and tensors.
type Read = fn(&Path, &JsonConfig, &TensorIndex) -> Result<HubArchitecture>;

/// The formats, by the `model_type` that is the family's name.
const FORMATS: &[(PretrainedFamily, Read)] = &[
    (PretrainedFamily::Bert, |folder, config, tensors| {
        HubBert::read(folder, config, tensors).map(HubArchitecture::Bert)
    }),
    (PretrainedFamily::Vit, |_, config, tensors| {
        HubVit::read(VitFamily::Vit, config, tensors).map(HubArchitecture::Vit)
    }),
    (PretrainedFamily::Deit, |_, config, tensors| {
        HubVit::read(VitFamily::Deit, config, tensors).map(HubArchitecture::Vit)
    }),
    (PretrainedFamily::Dinov2, |_, config, tensors| {
        HubVit::read(VitFamily::Dinov2, config, tensors).map(HubArchitecture::Vit)
    }),
    (PretrainedFamily::ResNet, |_, config, _| {
        HubResNet::read(config).map(HubArchitecture::ResNet)
    }),
    (PretrainedFamily::Gpt2, |_, config, _| {
        HubGpt2::read(config).map(HubArchitecture::Gpt2)
    }),
];

impl HubArchitecture {
    pub(super) fn read(folder: &Path, config: &JsonConfig, tensors: &TensorIndex) -> Result<Self> {
        let model_type = config.text("model_type", "");
        let found = FORMATS.iter().find(|row| row.0.name() == model_type);
        let Some((_, read)) = found else {
            let names: Vec<&str> = FORMATS.iter().map(|row| row.0.name()).collect();
            let reason = format!(
                "model_type is {model_type:?}, and Ebb knows {}",
                names.join(", ")
            );
            return Err(config.refuse(reason));
        };
        read(folder, config, tensors)
    }

    /// Its properties.
    pub(crate) fn network(&self) -> &dyn HubNetwork {
        match self {
            HubArchitecture::Bert(network) => network,
            HubArchitecture::Vit(network) => network,
            HubArchitecture::ResNet(network) => network,
            HubArchitecture::Gpt2(network) => network,
        }
    }
}

/// Properties of a pretrained network.
pub(crate) trait HubNetwork {
    /// Its row in the catalog.
    fn family(&self) -> PretrainedFamily;

    /// How its published tensors correspond to parameters, with its published head.
    fn table(&self) -> TensorTable;

    /// Its blocks.
    fn blocks(&self) -> BlockLayout;

    /// Limits of its texts; `None` for image networks.
    fn text_limits(&self) -> Option<TextLimits> {
        None
    }

    /// Sides of its images.
    fn image_input(&self) -> ImageInput {
        ImageInput {
            default_side: 224,
            multiple: 1,
        }
    }

    /// Width of a token, summed over all blocks; 0 for convolutions.
    fn total_width(&self) -> usize {
        0
    }

    /// Rough number of parameters that its config describes, to compare with the size of its files.
    fn estimated_parameters(&self) -> f64;
}

/// Limits of a text network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLimits {
    /// Most tokens of a text.
    pub tokens: u32,
    /// Size of the vocabulary.
    pub vocabulary: u32,
}

impl TextLimits {
    pub(super) fn for_shape(shape: &SequenceShape) -> Self {
        TextLimits {
            tokens: shape.tokens as u32,
            vocabulary: shape.vocabulary as u32,
        }
    }
}

/// Sides of the images of an image network, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageInput {
    /// The side it was trained with.
    pub default_side: usize,
    /// Any side must be a multiple of this.
    pub multiple: usize,
}

/// Rough number of parameters of `depth` blocks.
pub(super) fn block_parameters(depth: usize, block: &BlockShape) -> f64 {
    let (width, hidden) = (block.width as f64, block.hidden as f64);
    depth as f64 * width * (4.0 * width + 2.0 * hidden)
}

/// Number of embeddings of tokens and positions.
pub(super) fn text_parameters(shape: &SequenceShape) -> f64 {
    (shape.vocabulary as f64 + shape.tokens as f64) * shape.width as f64
}
