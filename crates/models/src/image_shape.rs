//! Shapes of Ebb's own image networks, before they are built.

use crate::resnet::{ResNetShape, ResNetStyle};
use crate::vit::VitShape;

/// The shape of an image network.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageShape {
    /// Residual network.
    ResNet(ResNetShape, ResNetStyle),
    /// Vision transformer.
    Vit(VitShape),
}

impl ImageShape {
    /// Number of blocks that can be checkpointed.
    pub fn blocks(&self) -> usize {
        match self {
            ImageShape::ResNet(shape, _) => shape.blocks.len(),
            ImageShape::Vit(shape) => shape.depth,
        }
    }
}
