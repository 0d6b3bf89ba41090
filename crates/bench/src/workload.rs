//! The workloads: seven networks by their sizes.

use models::{ResNetShape, SequenceShape, VitShape};
use trainer::internals::AttentionSize;

/// A fixed network with made-up data, for comparison with other trainers on the same shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Language model, 6 blocks of 384, 256 tokens, bytes.
    Gpt,
    /// Language model, 12 blocks of 768, 512 tokens, vocabulary 16,384.
    Gpt125m,
    /// ResNet-18 with GroupNorm at 224 px, 101 classes.
    ResNet18,
    /// ResNet-50 with GroupNorm at 224 px, 101 classes.
    ResNet50,
    /// ConvNeXt-T at 224 px, 101 classes.
    ConvNextTiny,
    /// ViT-Tiny/16 at 224 px, 101 classes.
    VitTiny,
    /// Text encoder, 4 blocks of 256, 128 tokens, 4 classes.
    BertMini,
}

/// Side of the images in pixels.
pub(crate) const IMAGE: usize = 224;
pub(crate) const IMAGE_CLASSES: usize = 101;
pub(crate) const TEXT_CLASSES: usize = 4;
/// Vocabulary of the text encoder.
pub(crate) const VOCABULARY: usize = 8192;

/// A workload's sizes.
pub(crate) enum Shape {
    Language(SequenceShape),
    Text(SequenceShape),
    Vit(VitShape),
    /// Two convolutions per block.
    ResNet(ResNetShape),
    /// Three convolutions per block.
    Bottlenecks(ResNetShape),
    ConvNext(&'static [ConvNextStage]),
}

/// One stage of a ConvNeXt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConvNextStage {
    /// Channels of its blocks.
    pub width: usize,
    /// Number of its blocks.
    pub depth: usize,
}

/// The stages of ConvNeXt-T.
const CONVNEXT_TINY: &[ConvNextStage] = &[
    ConvNextStage {
        width: 96,
        depth: 3,
    },
    ConvNextStage {
        width: 192,
        depth: 3,
    },
    ConvNextStage {
        width: 384,
        depth: 9,
    },
    ConvNextStage {
        width: 768,
        depth: 3,
    },
];

impl Workload {
    /// All workloads, in the order of `ebb bench --workload all`.
    pub const ALL: [Workload; 7] = [
        Workload::Gpt,
        Workload::Gpt125m,
        Workload::ResNet18,
        Workload::ResNet50,
        Workload::ConvNextTiny,
        Workload::VitTiny,
        Workload::BertMini,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Gpt => "gpt",
            Workload::Gpt125m => "gpt125m",
            Workload::ResNet18 => "resnet18",
            Workload::ResNet50 => "resnet50",
            Workload::ConvNextTiny => "convnext_tiny",
            Workload::VitTiny => "vit_tiny",
            Workload::BertMini => "bert_mini",
        }
    }

    /// The workload with this name on the command line.
    pub fn from_name(name: &str) -> Option<Workload> {
        Workload::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
    }

    pub(crate) fn shape(self) -> Shape {
        match self {
            Workload::Gpt => Shape::Language(SequenceShape {
                tokens: 256,
                vocabulary: 256,
                width: 384,
                depth: 6,
                heads: 6,
            }),
            Workload::Gpt125m => Shape::Language(SequenceShape {
                tokens: 512,
                vocabulary: 16_384,
                width: 768,
                depth: 12,
                heads: 12,
            }),
            Workload::BertMini => Shape::Text(SequenceShape {
                tokens: 128,
                vocabulary: VOCABULARY,
                width: 256,
                depth: 4,
                heads: 4,
            }),
            Workload::VitTiny => Shape::Vit(VitShape::tiny(IMAGE)),
            Workload::ResNet18 => Shape::ResNet(ResNetShape::resnet18()),
            Workload::ResNet50 => Shape::Bottlenecks(ResNetShape::resnet50()),
            Workload::ConvNextTiny => Shape::ConvNext(CONVNEXT_TINY),
        }
    }

    /// Whether most of its operations are convolutions.
    pub fn is_convolutional(self) -> bool {
        matches!(
            self,
            Workload::ResNet18 | Workload::ResNet50 | Workload::ConvNextTiny
        )
    }

    /// Tokens per sequence; 0 for images.
    pub fn tokens(self) -> usize {
        match self.shape() {
            Shape::Language(shape) => shape.tokens,
            Shape::Text(shape) => shape.tokens,
            Shape::Vit(_) | Shape::ResNet(_) | Shape::Bottlenecks(_) | Shape::ConvNext(_) => 0,
        }
    }

    /// Side of the images in pixels, or tokens per sequence.
    pub fn resolution(self) -> usize {
        match self.tokens() {
            0 => IMAGE,
            tokens => tokens,
        }
    }

    /// Width and heads of a transformer; `None` for a convolutional network.
    pub fn attention(self) -> Option<AttentionSize> {
        let (width, heads) = match self.shape() {
            Shape::Language(shape) => (shape.width, shape.heads),
            Shape::Text(shape) => (shape.width, shape.heads),
            Shape::Vit(shape) => (shape.width, shape.heads),
            Shape::ResNet(_) | Shape::Bottlenecks(_) | Shape::ConvNext(_) => return None,
        };
        Some(AttentionSize { width, heads })
    }

    /// Number of blocks that can be checkpointed.
    pub fn blocks(self) -> usize {
        match self.shape() {
            Shape::Language(shape) => shape.depth,
            Shape::Text(shape) => shape.depth,
            Shape::Vit(shape) => shape.depth,
            Shape::ResNet(shape) | Shape::Bottlenecks(shape) => shape.blocks.len(),
            Shape::ConvNext(stages) => stages.iter().map(|stage| stage.depth).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::DType;
    use models::{ModelId, Network};

    /// The sizes here decide how many operations are counted; the catalog decides what runs.
    #[test]
    fn workloads_of_images_are_networks_of_the_catalog() {
        for workload in Workload::ALL {
            let Some(model) = ModelId::image_model(workload.name()) else {
                assert!(workload.tokens() > 0, "{}", workload.name());
                continue;
            };
            assert_eq!(workload.blocks(), model.blocks() as usize);
            let (_, parameters) = workload.build_zeros(DType::F32).expect("it is built");
            let expected = Network::count_parameters(model, IMAGE as u32, IMAGE_CLASSES);
            assert_eq!(expected.ok(), Some(parameters.count() as u64));
        }
    }

    #[test]
    fn heads_of_every_workload_fill_vectors_of_eight() {
        for size in Workload::ALL.into_iter().filter_map(Workload::attention) {
            assert_eq!(size.width % size.heads, 0, "{size:?}");
            assert_eq!(size.width / size.heads % 8, 0, "{size:?}");
        }
    }
}
