//! The common interface of all pretrained architectures.

use super::fine_tuning::BlockLayout;
use crate::image_network::ImageArchitecture;
use crate::tensor_map::TensorTable;
use crate::text_backbone::SequenceShape;
use crate::transformer::BlockShape;
use serde_json::Value as Json;
use std::fmt::Debug;

/// Properties of a pretrained network.
pub(crate) trait HubNetwork {
    /// How its published tensors correspond to parameters, with its published head.
    fn table(&self) -> TensorTable;

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

    /// Whether it gets a new head for other classes. A language model does not: its output weights
    /// are its embeddings.
    fn has_new_head(&self) -> bool {
        true
    }

    /// Whether its blocks consist of linear maps, which can have adapters and be quantized.
    fn has_linear_blocks(&self) -> bool {
        true
    }

    /// Rough number of parameters that its config describes, to compare with the size of its files.
    fn estimated_parameters(&self) -> f64;
}

/// Properties of a pretrained image network.
pub(crate) trait HubImageNetwork: HubNetwork + Debug + Send + Sync {
    /// The network for images of `side` pixels, the published side by default, with its published
    /// head or a new one.
    ///
    /// # Errors
    /// It has no such side; the text tells why.
    fn architecture(
        &self,
        side: Option<usize>,
        is_new_head: bool,
    ) -> Result<Box<dyn ImageArchitecture>, String>;

    /// The tensors after fine-tuning with a new head on images of `side` pixels.
    fn fine_tuned_table(&self, _side: usize) -> TensorTable {
        self.table()
    }

    /// Name of its classifier in the transformers library.
    fn transformers_class(&self) -> &'static str;

    /// Sets the side in pixels in `config.json`, if that has one.
    fn set_side(&self, _config: &mut Json, _side: usize) {}
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
pub(crate) fn block_parameters(depth: usize, block: &BlockShape) -> f64 {
    let (width, hidden) = (block.width as f64, block.hidden as f64);
    depth as f64 * width * (4.0 * width + 2.0 * hidden)
}

/// Number of embeddings of tokens and positions.
pub(super) fn text_parameters(shape: &SequenceShape) -> f64 {
    (shape.vocabulary as f64 + shape.tokens as f64) * shape.width as f64
}
