//! What the user can choose by name: optimizers, augmentation, mixing.

use super::{DropPolicy, ImageModel};
use models::{CompressorShape, SequenceShape};
use dataset::Task;

/// Networks by the name the user writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelId {
    /// Small residual ConvNet.
    ConvNet,
    /// Small vision transformer.
    VitMicro,
    /// A network for photographs with the sizes of its paper.
    Images(ImageModel),
    /// A transformer over tokens.
    Texts(TextModel),
    /// What a folder of published weights holds.
    Published(PretrainedFamily),
}

/// Published networks, by the name in their config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PretrainedFamily {
    /// Encoder of texts (Devlin et al. 2019).
    Bert,
    /// Vision transformer (Dosovitskiy et al. 2021).
    Vit,
    /// Vision transformer with a second token (Touvron et al. 2021).
    Deit,
    /// Vision transformer with scaled branches (Oquab et al. 2023).
    Dinov2,
    /// Residual network with frozen BatchNorm (He et al. 2016).
    ResNet,
    /// Language model (Radford et al. 2019).
    Gpt2,
}

impl PretrainedFamily {
    /// All of them.
    pub const ALL: [PretrainedFamily; 6] = [
        PretrainedFamily::Vit,
        PretrainedFamily::Deit,
        PretrainedFamily::Dinov2,
        PretrainedFamily::ResNet,
        PretrainedFamily::Bert,
        PretrainedFamily::Gpt2,
    ];

    /// What it learns.
    pub fn task(self) -> Task {
        match self {
            PretrainedFamily::Vit | PretrainedFamily::Deit | PretrainedFamily::Dinov2 | PretrainedFamily::ResNet => {
                Task::ImageClassification
            }
            PretrainedFamily::Bert => Task::TextClassification,
            PretrainedFamily::Gpt2 => Task::LanguageModel,
        }
    }

    /// The name in configs.
    pub fn name(self) -> &'static str {
        match self {
            PretrainedFamily::Bert => "bert",
            PretrainedFamily::Vit => "vit",
            PretrainedFamily::Deit => "deit",
            PretrainedFamily::Dinov2 => "dinov2",
            PretrainedFamily::ResNet => "resnet",
            PretrainedFamily::Gpt2 => "gpt2",
        }
    }

    /// The name shown.
    pub fn label(self) -> &'static str {
        match self {
            PretrainedFamily::Bert => "BERT",
            PretrainedFamily::Vit => "ViT",
            PretrainedFamily::Deit => "DeiT",
            PretrainedFamily::Dinov2 => "DINOv2",
            PretrainedFamily::ResNet => "ResNet",
            PretrainedFamily::Gpt2 => "GPT-2",
        }
    }
}

/// A network for texts: how large it is, and what it has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextModel {
    /// Its size.
    pub size: TextSize,
    /// Most tokens of a text.
    pub tokens: u32,
    /// Different tokens.
    pub vocabulary: u32,
    /// Who chooses the tokens that are kept, of a token compression.
    pub policy: Option<DropPolicy>,
}

/// Sizes of networks for texts; of each task the smallest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextSize {
    /// Encoder, 2 blocks of 128.
    TextMicro,
    /// Encoder, 4 blocks of 256.
    TextMini,
    /// Language model, 4 blocks of 192: 1.9 million parameters with bytes.
    GptMicro,
    /// Language model, 6 blocks of 384: 10.8 million.
    GptMini,
    /// Language model, 12 blocks of 768: 85 million.
    GptSmall,
    /// Token compression: a language model of 3 blocks of 128, a policy of 2 of 64: 0.9 million parameters.
    CompressMicro,
    /// 6 blocks of 384 and 3 of 192: 14 million.
    CompressMini,
    /// 12 blocks of 768 and 8 of 512: 119 million.
    CompressSmall,
}

impl TextSize {
    /// All of them, of each task the suggested one first.
    pub const ALL: [TextSize; 8] = [
        TextSize::TextMicro,
        TextSize::TextMini,
        TextSize::GptMini,
        TextSize::GptMicro,
        TextSize::GptSmall,
        TextSize::CompressMicro,
        TextSize::CompressMini,
        TextSize::CompressSmall,
    ];

    /// What it learns.
    pub fn task(self) -> Task {
        match self {
            TextSize::TextMicro | TextSize::TextMini => Task::TextClassification,
            TextSize::GptMicro | TextSize::GptMini | TextSize::GptSmall => Task::LanguageModel,
            TextSize::CompressMicro | TextSize::CompressMini | TextSize::CompressSmall => {
                Task::TokenCompression
            }
        }
    }

    /// The name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            TextSize::TextMicro => "text_micro",
            TextSize::TextMini => "text_mini",
            TextSize::GptMicro => "gpt_micro",
            TextSize::GptMini => "gpt_mini",
            TextSize::GptSmall => "gpt_small",
            TextSize::CompressMicro => "compress_micro",
            TextSize::CompressMini => "compress_mini",
            TextSize::CompressSmall => "compress_small",
        }
    }

    /// The name shown.
    pub fn label(self) -> &'static str {
        match self {
            TextSize::TextMicro => "Text-Micro",
            TextSize::TextMini => "Text-Mini",
            TextSize::GptMicro => "GPT-Micro",
            TextSize::GptMini => "GPT-Mini",
            TextSize::GptSmall => "GPT-Small",
            TextSize::CompressMicro => "Compress-Micro",
            TextSize::CompressMini => "Compress-Mini",
            TextSize::CompressSmall => "Compress-Small",
        }
    }

    /// Width, blocks, heads.
    fn sizes(self) -> (usize, usize, usize) {
        match self {
            TextSize::TextMicro => (128, 2, 4),
            TextSize::TextMini => (256, 4, 4),
            TextSize::GptMicro => (192, 4, 6),
            TextSize::GptMini => (384, 6, 6),
            TextSize::GptSmall => (768, 12, 12),
            TextSize::CompressMicro => (128, 3, 4),
            TextSize::CompressMini => (384, 6, 6),
            TextSize::CompressSmall => (768, 12, 12),
        }
    }

    /// The same of the policy of a token compression.
    fn policy_sizes(self) -> (usize, usize, usize) {
        match self {
            TextSize::CompressSmall => (512, 8, 8),
            TextSize::CompressMini => (192, 3, 3),
            _ => (64, 2, 4),
        }
    }
}

impl TextModel {
    /// All sizes of the network.
    pub fn shape(self) -> SequenceShape {
        self.sized(self.size.sizes())
    }

    /// All sizes of a token compression: the policy is there where it is learnt.
    pub fn compressor(self) -> CompressorShape {
        let learnt = self.policy == Some(DropPolicy::Learned);
        CompressorShape {
            model: self.shape(),
            policy: learnt.then(|| self.sized(self.size.policy_sizes())),
        }
    }

    /// Blocks that can be checkpointed.
    pub fn blocks(self) -> u32 {
        let policy = self.compressor().policy.map_or(0, |policy| policy.depth);
        (self.shape().depth + policy) as u32
    }

    fn sized(self, (width, depth, heads): (usize, usize, usize)) -> SequenceShape {
        SequenceShape {
            tokens: self.tokens as usize,
            vocabulary: self.vocabulary as usize,
            width,
            depth,
            heads,
        }
    }
}

impl ModelId {
    /// The small ones for photographs, the suggested one first.
    pub const SMALL: [ModelId; 2] = [ModelId::CONV_NET, ModelId::VIT_MICRO];

    /// All of Ebb's own for photographs, the small ones first.
    pub fn of_photographs() -> impl Iterator<Item = ModelId> {
        let sized = ImageModel::ALL.into_iter().map(ModelId::Image);
        ModelId::SMALL.into_iter().chain(sized)
    }

    /// The name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ModelId::CONV_NET => "convnet",
            ModelId::VIT_MICRO => "vit_micro",
            ModelId::Image(size) => size.name(),
            ModelId::Text(model) => model.size.name(),
            ModelId::Pretrained(family) => family.name(),
        }
    }

    /// The name shown.
    pub fn label(self) -> &'static str {
        match self {
            ModelId::CONV_NET => "ConvNet",
            ModelId::VIT_MICRO => "ViT-Micro/8",
            ModelId::Image(size) => size.label(),
            ModelId::Text(model) => model.size.label(),
            ModelId::Pretrained(family) => family.label(),
        }
    }

    /// Side of the images in pixels, unless asked otherwise.
    pub fn usual_side(self) -> u32 {
        match self {
            ModelId::Image(_) => 224,
            _ => 64,
        }
    }

    /// The image side must be a multiple of this, where the network is Ebb's own.
    pub fn multiple(self) -> u32 {
        match self {
            ModelId::CONV_NET | ModelId::Text(_) | ModelId::Pretrained(_) => 1,
            ModelId::VIT_MICRO => 8,
            ModelId::Image(size) => size.multiple(),
        }
    }

    /// What it learns.
    pub fn task(self) -> Task {
        match self {
            ModelId::CONV_NET | ModelId::VIT_MICRO | ModelId::Image(_) => {
                Task::ImageClassification
            }
            ModelId::Text(model) => model.size.task(),
            ModelId::Pretrained(family) => family.task(),
        }
    }
}

#[cfg(test)]
mod tests {
    use runlog::RunConfig;

    #[test]
    fn configs_accept_every_network_of_the_catalog() {
        for name in models::catalog::CATALOG.iter().map(|entry| entry.name) {
            let config = RunConfig {
                model: Some(name.to_owned()),
                ..RunConfig::default()
            };
            assert!(config.validate().is_ok(), "{name}");
        }
    }
}
