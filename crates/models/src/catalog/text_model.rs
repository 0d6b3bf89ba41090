//! Text networks to train from scratch: their sizes, and their shapes for the texts of a run.

use super::{Architecture, BackboneSize};
use crate::text_backbone::SequenceShape;
use crate::token_compressor::CompressorShape;

/// A text network to train from scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextModel {
    /// Its size.
    pub size: TextSize,
    /// Most tokens of a text.
    pub tokens: u32,
    /// Size of the vocabulary.
    pub vocabulary: u32,
    /// How a token compression chooses the tokens to keep; `None` for other tasks.
    pub policy: Option<DropPolicy>,
    /// Neighbors on each side that a token compression adds to a token; other tasks ignore it.
    pub neighbors: u32,
}

/// Sizes of text networks, for each task from small to large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextSize {
    /// Encoder, 2 blocks of 128.
    TextMicro,
    /// Encoder, 4 blocks of 256.
    TextMini,
    /// Language model, 4 blocks of 192: 1.9 million parameters with bytes.
    GptMicro,
    /// Language model, 6 blocks of 384: 10.8 million parameters with bytes.
    GptMini,
    /// Language model, 12 blocks of 768: 85 million parameters with bytes.
    GptSmall,
    /// Token compression, a language model of 3 blocks of 128 and a policy of 2 blocks of 64: 0.9
    /// million parameters.
    CompressMicro,
    /// Token compression, 6 blocks of 384 and 3 blocks of 192: 14 million parameters.
    CompressMini,
    /// Token compression, 12 blocks of 768 and 8 blocks of 512: 119 million parameters.
    CompressSmall,
}

/// How a token compression chooses the tokens to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropPolicy {
    /// A network that is trained with the language model.
    Learned,
    /// At random, every token with the same probability.
    Random,
    /// Evenly spaced tokens.
    EveryKth,
    /// The tokens that are rarest in the training texts.
    Frequency,
}

impl TextModel {
    /// Default number of neighbors.
    pub const NEIGHBORS: u32 = 4;

    /// Shape of the encoder or language model.
    pub fn shape(self) -> SequenceShape {
        match self.size.entry().architecture {
            Architecture::TextEncoder(size)
            | Architecture::Gpt(size)
            | Architecture::Compressor { model: size, .. } => self.with_size(size),
            Architecture::Image(_) | Architecture::HubFolder(_) => {
                unreachable!("every catalog entry for texts has a text backbone")
            }
        }
    }

    /// Shapes of both networks of a token compression. The policy has one only if it is learned.
    pub(crate) fn compressor_shape(self) -> Option<CompressorShape> {
        let Architecture::Compressor { model, policy } = self.size.entry().architecture else {
            return None;
        };
        let is_learned = self.policy == Some(DropPolicy::Learned);
        Some(CompressorShape {
            model: self.with_size(model),
            policy: is_learned.then(|| self.with_size(policy)),
            neighbors: self.neighbors as usize,
        })
    }

    /// Number of blocks that can be checkpointed.
    pub fn blocks(self) -> u32 {
        let policy = self.compressor_shape().and_then(|shape| shape.policy);
        (self.shape().depth + policy.map_or(0, |policy| policy.depth)) as u32
    }

    fn with_size(self, size: BackboneSize) -> SequenceShape {
        SequenceShape {
            tokens: self.tokens as usize,
            vocabulary: self.vocabulary as usize,
            width: size.width,
            depth: size.depth,
            heads: size.heads,
        }
    }
}

impl DropPolicy {
    /// All policies.
    pub const ALL: [DropPolicy; 4] = [
        DropPolicy::Learned,
        DropPolicy::Random,
        DropPolicy::EveryKth,
        DropPolicy::Frequency,
    ];

    /// The name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            DropPolicy::Learned => "learned",
            DropPolicy::Random => "random",
            DropPolicy::EveryKth => "every-kth",
            DropPolicy::Frequency => "frequency",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ModelTask;

    #[test]
    fn every_text_size_has_a_shape_and_blocks() {
        for size in TextSize::all() {
            let model = TextModel {
                size,
                tokens: 64,
                vocabulary: 256,
                policy: Some(DropPolicy::Learned),
                neighbors: TextModel::NEIGHBORS,
            };
            assert!(
                model.shape().width.is_multiple_of(model.shape().heads),
                "{size:?}"
            );
            let is_compressor = size.task() == ModelTask::TokenCompression;
            assert_eq!(
                model.compressor_shape().is_some(),
                is_compressor,
                "{size:?}"
            );
            assert!(model.blocks() >= model.shape().depth as u32, "{size:?}");
        }
    }
}
