//! The networks that Ebb knows: one row of [`CATALOG`] for each, with its name, label, task, input
//! size and shape. Code that needs to know something about a network reads its row.
//!
//! To add an image network, follow `docs/add-a-network.md`.

// Text networks, by size.
mod text_model;

// Building them.
mod build;
mod small_published;

pub use small_published::SmallSizes;
pub use text_model::{DropPolicy, TextModel, TextSize};

use crate::hub_format::{HubArchitecture, HubBert, HubDecoder, HubGpt2, ReadArchitecture};
use crate::image_network::{AttentionHeads, ImageArchitecture};
use crate::image_networks::{
    ConvNextArchitecture, HubConvNext, HubResNet, HubVit, ResNetArchitecture, ResNetShape,
    ResNetStyle, VitArchitecture, VitFamily, VitShape,
};
use crate::text_backbone::SequenceShape;
use crate::token_compressor::CompressorShape;

/// A network that can be trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelId {
    /// An image network to train from scratch.
    Image(ImageModel),
    /// A text network to train from scratch.
    Text(TextModel),
    /// A network whose weights and shape come from a folder.
    Pretrained(PretrainedFamily),
}

/// Image networks to train from scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageModel {
    /// Small residual network: 4 blocks, 1.2 million parameters.
    ConvNet,
    /// Small vision transformer: 6 blocks of 128, 1.2 million parameters.
    VitMicro,
    /// 18 layers, 11 million parameters.
    ResNet18,
    /// 34 layers, 21 million parameters.
    ResNet34,
    /// 50 layers in bottlenecks, 24 million parameters.
    ResNet50,
    /// 12 blocks of 192, 5.5 million parameters.
    VitTiny,
    /// 12 blocks of 384, 22 million parameters.
    VitSmall,
    /// 12 blocks of 768, 86 million parameters.
    VitBase,
    /// 18 blocks in four stages, 28 million parameters.
    ConvNextTiny,
}

/// Networks with pretrained weights, by the `model_type` in their `config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PretrainedFamily {
    /// Text encoder (Devlin et al. 2019).
    Bert,
    /// Vision transformer (Dosovitskiy et al. 2021).
    Vit,
    /// Vision transformer with a distillation token (Touvron et al. 2021).
    Deit,
    /// Vision transformer with LayerScale (Oquab et al. 2023).
    Dinov2,
    /// Residual network with frozen BatchNorm (He et al. 2016).
    ResNet,
    /// Language model (Radford et al. 2019).
    Gpt2,
    /// Language model: Llama 3 and SmolLM2 (Grattafiori et al. 2024).
    Llama,
    /// Language model: Mistral (Jiang et al. 2023).
    Mistral,
    /// Language model: Qwen 2 and 2.5 (Yang et al. 2024).
    Qwen2,
    /// Language model: Qwen 3 (Yang et al. 2025).
    Qwen3,
    /// Language model: Gemma 2 (Gemma Team 2024).
    Gemma2,
    /// Language model: Gemma 3 for texts (Gemma Team 2025).
    Gemma3,
    /// Language model: Phi-3 and 4 (Abdin et al. 2024).
    Phi3,
    /// Language model: SmolLM3 (Hugging Face 2025).
    SmolLm3,
    /// Language model: OLMo 2 (OLMo et al. 2025).
    Olmo2,
    /// Convolutional network (Liu et al. 2022).
    ConvNext,
}

/// What a network is trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelTask {
    /// Images to classes, regression targets, or both.
    ImageClassification,
    /// Texts to classes.
    TextClassification,
    /// The next token of documents.
    LanguageModel,
    /// Which tokens of documents can be left out.
    TokenCompression,
}

/// A row of the catalog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelEntry {
    /// The network.
    pub key: ModelKey,
    /// Its name in configs and on the command line.
    pub name: &'static str,
    /// Its name in the window.
    pub label: &'static str,
    /// What it is trained for.
    pub task: ModelTask,
    /// Default side of its images in pixels; text networks do not use it.
    pub default_input_size: u32,
    /// The side of its images must be a multiple of this; 1 for networks that do not care.
    pub input_multiple: u32,
    /// Its layers and their sizes.
    pub architecture: Architecture,
}

/// The network that a row describes: a [`ModelId`] without the lengths that a run chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelKey {
    /// An image network to train from scratch.
    Image(ImageModel),
    /// A text network to train from scratch.
    Text(TextSize),
    /// A network with pretrained weights.
    Pretrained(PretrainedFamily),
}

/// The layers of a network and their sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Architecture {
    /// The description for images of a given side in pixels.
    Image(fn(usize) -> Box<dyn ImageArchitecture>),
    /// A text encoder with a head for classes.
    TextEncoder(BackboneSize),
    /// A language model.
    Gpt(BackboneSize),
    /// A language model that fills gaps.
    Compressor {
        /// The language model.
        model: BackboneSize,
        /// The policy, if it is learned.
        policy: BackboneSize,
    },
    /// A folder of pretrained weights describes it; the function reads the description.
    HubFolder(ReadArchitecture),
}

/// Sizes of a stack of transformer blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackboneSize {
    /// Width of a token.
    pub width: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Number of attention heads.
    pub heads: usize,
}

/// All networks. For each task the suggested one comes first.
// tidy: table
#[rustfmt::skip]
pub(crate) const CATALOG: &[ModelEntry] = &[
    image(ImageModel::ConvNet, "convnet", "ConvNet", 64, 1, |_| resnet(ResNetShape::convnet(), ResNetStyle::BASIC)),
    image(ImageModel::VitMicro, "vit_micro", "ViT-Micro/8", 64, 8, |side| vit(VitShape::micro(side))),
    image(ImageModel::ResNet18, "resnet18", "ResNet-18", 224, 1, |_| resnet(ResNetShape::resnet18(), ResNetStyle::BASIC)),
    image(ImageModel::ResNet34, "resnet34", "ResNet-34", 224, 1, |_| resnet(ResNetShape::resnet34(), ResNetStyle::BASIC)),
    image(ImageModel::ResNet50, "resnet50", "ResNet-50", 224, 1, |_| resnet(ResNetShape::resnet50(), ResNetStyle::BOTTLENECK)),
    image(ImageModel::VitTiny, "vit_tiny", "ViT-Tiny/16", 224, 16, |side| vit(VitShape::tiny(side))),
    image(ImageModel::VitSmall, "vit_small", "ViT-Small/16", 224, 16, |side| vit(VitShape::small(side))),
    image(ImageModel::VitBase, "vit_base", "ViT-Base/16", 224, 16, |side| vit(VitShape::base(side))),
    image(ImageModel::ConvNextTiny, "convnext_tiny", "ConvNeXt-T", 224, 32, |_| Box::new(ConvNextArchitecture::tiny())),
    text_encoder(TextSize::TextMicro, "text_micro", "Text-Micro", size(128, 2, 4)),
    text_encoder(TextSize::TextMini, "text_mini", "Text-Mini", size(256, 4, 4)),
    gpt(TextSize::GptMini, "gpt_mini", "GPT-Mini", size(384, 6, 6)),
    gpt(TextSize::GptMicro, "gpt_micro", "GPT-Micro", size(192, 4, 6)),
    gpt(TextSize::GptSmall, "gpt_small", "GPT-Small", size(768, 12, 12)),
    compressor(TextSize::CompressMicro, "compress_micro", "Compress-Micro", size(128, 3, 4), size(64, 2, 4)),
    compressor(TextSize::CompressMini, "compress_mini", "Compress-Mini", size(384, 6, 6), size(192, 3, 3)),
    compressor(TextSize::CompressSmall, "compress_small", "Compress-Small", size(768, 12, 12), size(512, 8, 8)),
    pretrained(PretrainedFamily::Vit, "vit", "ViT", ModelTask::ImageClassification, |_, config, tensors| HubVit::read(VitFamily::Vit, config, tensors).map(HubArchitecture::for_image)),
    pretrained(PretrainedFamily::Deit, "deit", "DeiT", ModelTask::ImageClassification, |_, config, tensors| HubVit::read(VitFamily::Deit, config, tensors).map(HubArchitecture::for_image)),
    pretrained(PretrainedFamily::Dinov2, "dinov2", "DINOv2", ModelTask::ImageClassification, |_, config, tensors| HubVit::read(VitFamily::Dinov2, config, tensors).map(HubArchitecture::for_image)),
    pretrained(PretrainedFamily::ResNet, "resnet", "ResNet", ModelTask::ImageClassification, |_, config, _| HubResNet::read(config).map(HubArchitecture::for_image)),
    pretrained(PretrainedFamily::ConvNext, "convnext", "ConvNeXt", ModelTask::ImageClassification, |_, config, _| HubConvNext::read(config).map(HubArchitecture::for_image)),
    pretrained(PretrainedFamily::Bert, "bert", "BERT", ModelTask::TextClassification, |folder, config, tensors| HubBert::read(folder, config, tensors).map(HubArchitecture::Bert)),
    pretrained(PretrainedFamily::Gpt2, "gpt2", "GPT-2", ModelTask::LanguageModel, |_, config, _| HubGpt2::read(config).map(HubArchitecture::Gpt2)),
    decoder(PretrainedFamily::Llama, "llama", "Llama 3"),
    decoder(PretrainedFamily::Mistral, "mistral", "Mistral"),
    decoder(PretrainedFamily::Qwen2, "qwen2", "Qwen 2"),
    decoder(PretrainedFamily::Qwen3, "qwen3", "Qwen 3"),
    decoder(PretrainedFamily::Gemma2, "gemma2", "Gemma 2"),
    decoder(PretrainedFamily::Gemma3, "gemma3_text", "Gemma 3"),
    decoder(PretrainedFamily::Phi3, "phi3", "Phi-3"),
    decoder(PretrainedFamily::SmolLm3, "smollm3", "SmolLM3"),
    decoder(PretrainedFamily::Olmo2, "olmo2", "OLMo 2"),
];

/// Side of images in pixels for rows that leave the choice to the run.
const DEFAULT_SIDE: u32 = 64;

const fn image(
    model: ImageModel,
    name: &'static str,
    label: &'static str,
    default_input_size: u32,
    input_multiple: u32,
    describe: fn(usize) -> Box<dyn ImageArchitecture>,
) -> ModelEntry {
    ModelEntry {
        key: ModelKey::Image(model),
        name,
        label,
        task: ModelTask::ImageClassification,
        default_input_size,
        input_multiple,
        architecture: Architecture::Image(describe),
    }
}

const fn row(
    key: ModelKey,
    name: &'static str,
    label: &'static str,
    task: ModelTask,
    architecture: Architecture,
) -> ModelEntry {
    ModelEntry {
        key,
        name,
        label,
        task,
        default_input_size: DEFAULT_SIDE,
        input_multiple: 1,
        architecture,
    }
}

const fn text_encoder(
    size: TextSize,
    name: &'static str,
    label: &'static str,
    backbone: BackboneSize,
) -> ModelEntry {
    let architecture = Architecture::TextEncoder(backbone);
    let task = ModelTask::TextClassification;
    row(ModelKey::Text(size), name, label, task, architecture)
}

const fn gpt(
    size: TextSize,
    name: &'static str,
    label: &'static str,
    backbone: BackboneSize,
) -> ModelEntry {
    let architecture = Architecture::Gpt(backbone);
    let task = ModelTask::LanguageModel;
    row(ModelKey::Text(size), name, label, task, architecture)
}

const fn compressor(
    size: TextSize,
    name: &'static str,
    label: &'static str,
    model: BackboneSize,
    policy: BackboneSize,
) -> ModelEntry {
    let architecture = Architecture::Compressor { model, policy };
    let task = ModelTask::TokenCompression;
    row(ModelKey::Text(size), name, label, task, architecture)
}

const fn pretrained(
    family: PretrainedFamily,
    name: &'static str,
    label: &'static str,
    task: ModelTask,
    read: ReadArchitecture,
) -> ModelEntry {
    let key = ModelKey::Pretrained(family);
    row(key, name, label, task, Architecture::HubFolder(read))
}

const fn decoder(family: PretrainedFamily, name: &'static str, label: &'static str) -> ModelEntry {
    pretrained(
        family,
        name,
        label,
        ModelTask::LanguageModel,
        |_, config, _| HubDecoder::read(config).map(HubArchitecture::for_decoder),
    )
}

fn resnet(shape: ResNetShape, style: ResNetStyle) -> Box<dyn ImageArchitecture> {
    Box::new(ResNetArchitecture { shape, style })
}

fn vit(shape: VitShape) -> Box<dyn ImageArchitecture> {
    Box::new(VitArchitecture::from_scratch(shape))
}

const fn size(width: usize, depth: usize, heads: usize) -> BackboneSize {
    BackboneSize {
        width,
        depth,
        heads,
    }
}

impl ModelKey {
    fn entry(self) -> &'static ModelEntry {
        let found = CATALOG.iter().find(|entry| entry.key == self);
        found.expect("the catalog has an entry for every network")
    }
}

impl ModelId {
    /// The small residual network.
    pub const CONV_NET: ModelId = ModelId::Image(ImageModel::ConvNet);
    /// The small vision transformer.
    pub const VIT_MICRO: ModelId = ModelId::Image(ImageModel::VitMicro);
    /// The small image networks, the suggested one first.
    pub const SMALL: [ModelId; 2] = [ModelId::CONV_NET, ModelId::VIT_MICRO];

    /// The image networks to train from scratch, the suggested one first.
    pub fn image_models() -> impl Iterator<Item = ModelId> {
        CATALOG.iter().filter_map(|entry| match entry.key {
            ModelKey::Image(model) => Some(ModelId::Image(model)),
            _ => None,
        })
    }

    /// The image network of this name.
    pub fn image_model(name: &str) -> Option<ModelId> {
        ModelId::image_models().find(|model| model.name() == name)
    }

    /// Its row in the catalog.
    pub(crate) fn entry(self) -> &'static ModelEntry {
        match self {
            ModelId::Image(model) => ModelKey::Image(model).entry(),
            ModelId::Text(model) => ModelKey::Text(model.size).entry(),
            ModelId::Pretrained(family) => ModelKey::Pretrained(family).entry(),
        }
    }

    /// Its name in configs and on the command line.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Its name in the window.
    pub fn label(self) -> &'static str {
        self.entry().label
    }

    /// What it is trained for.
    pub fn task(self) -> ModelTask {
        self.entry().task
    }

    /// Default side of its images in pixels.
    pub fn default_input_size(self) -> u32 {
        self.entry().default_input_size
    }

    /// The side of its images must be a multiple of this. For pretrained networks see
    /// [`crate::Pretrained::input_size`].
    pub fn input_multiple(self) -> u32 {
        self.entry().input_multiple
    }

    /// Its description for images of `side` pixels; `None` for text networks and pretrained ones.
    pub(crate) fn image_architecture(self, side: usize) -> Option<Box<dyn ImageArchitecture>> {
        match self.entry().architecture {
            Architecture::Image(describe) => Some(describe(side)),
            _ => None,
        }
    }

    /// Sizes of the attention of an image network to train from scratch, for images of `side`
    /// pixels; `None` for networks without attention, and for texts.
    pub fn attention(self, side: usize) -> Option<AttentionHeads> {
        self.image_architecture(side)?.attention()
    }

    /// Its shape if it is a text network to train from scratch.
    pub(crate) fn text_shape(self) -> Option<SequenceShape> {
        match self {
            ModelId::Text(model) => Some(model.shape()),
            ModelId::Image(_) | ModelId::Pretrained(_) => None,
        }
    }

    /// Its shape if it is a token compression.
    pub(crate) fn compressor_shape(self) -> Option<CompressorShape> {
        match self {
            ModelId::Text(model) => model.compressor_shape(),
            ModelId::Image(_) | ModelId::Pretrained(_) => None,
        }
    }

    /// Number of blocks that can be checkpointed; 0 for pretrained networks, whose folder knows it.
    pub fn blocks(self) -> u32 {
        match self {
            ModelId::Text(model) => model.blocks(),
            model => {
                let side = model.default_input_size() as usize;
                let described = model.image_architecture(side);
                described.map_or(0, |network| network.blocks() as u32)
            }
        }
    }
}

/// What a key of one kind reads from its row.
macro_rules! catalog_key {
    ($key:ident, $kind:ident) => {
        impl $key {
            /// All rows of this kind, for each task the suggested one first.
            pub fn all() -> impl Iterator<Item = $key> {
                CATALOG.iter().filter_map(|entry| match entry.key {
                    ModelKey::$kind(key) => Some(key),
                    _ => None,
                })
            }

            /// Those for a task, the suggested one first.
            pub fn for_task(task: ModelTask) -> impl Iterator<Item = $key> {
                $key::all().filter(move |key| key.task() == task)
            }

            fn entry(self) -> &'static ModelEntry {
                ModelKey::$kind(self).entry()
            }

            /// Its name in configs and on the command line; for a family its `model_type`.
            pub fn name(self) -> &'static str {
                self.entry().name
            }

            /// Its name in the window.
            pub fn label(self) -> &'static str {
                self.entry().label
            }

            /// What its networks are trained for.
            pub fn task(self) -> ModelTask {
                self.entry().task
            }
        }
    };
}

catalog_key!(TextSize, Text);
catalog_key!(PretrainedFamily, Pretrained);

impl PretrainedFamily {
    /// The family of this `model_type`.
    pub(crate) fn from_name(name: &str) -> Option<PretrainedFamily> {
        PretrainedFamily::all().find(|family| family.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys_are_unique() {
        for (index, entry) in CATALOG.iter().enumerate() {
            let rest = &CATALOG[index + 1..];
            assert!(
                rest.iter().all(|other| other.name != entry.name),
                "{}",
                entry.name
            );
            assert!(
                rest.iter().all(|other| other.key != entry.key),
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn default_input_sizes_are_valid() {
        for model in ModelId::image_models() {
            let size = model.default_input_size();
            assert!(
                size.is_multiple_of(model.input_multiple()),
                "{}",
                model.name()
            );
        }
    }
}
