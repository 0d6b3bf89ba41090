//! Networks: plain structs of parameter positions, with one `forward` each. No layer uses a statistic of the piece.

mod builder;
mod layers;
mod adapter;
mod resnet;
mod past;
mod transformer;
mod vit;
mod trunk;
mod text_encoder;
mod gpt;
mod images;
mod compressor;

pub use adapter::{
    AdaptedLinear, AdapterShape, FrozenLinear, is_adapter, load_adapters, merged, save_adapters,
};
pub use builder::Builder;
pub use compressor::{Compressor, CompressorShape, Judgement};
pub use gpt::{Gpt, GptShape};
pub use images::ImageShape;
pub(crate) use layers::GROUP_EPSILON;
pub use layers::{ChannelScale, Conv, GroupNorm, LayerNorm, Linear};
pub use past::Past;
pub use resnet::{Branch, ResNet, ResNetNorm, ResNetShape, ResNetStyle, Stem, keeps_last};
pub use text_encoder::{Pooling, TextEncoder, TextEncoderShape, TextEncoderStyle};
pub use transformer::{Block, BlockShape, Blocks, Branches, Gelu, Norms};
pub use trunk::SequenceShape;
pub use vit::{Vit, VitReads, VitShape, VitStyle, VitTokens};

use crate::plan::ModelKind;
use candle_core::{DType, Device};
use dataset::Task;
use tape::{Parameters, Result, Tape, TapeError, Value};

/// A network: for images, texts or documents.
#[derive(Debug, Clone)]
pub enum Network {
    /// Residual convolutions with GroupNorm.
    ResNet(ResNet),
    /// Vision transformer.
    Vit(Vit),
    /// Text encoder with classes.
    TextEncoder(TextEncoder),
    /// Language model.
    Gpt(Gpt),
    /// A language model that fills gaps, and the policy that makes them.
    Compressor(Compressor),
}

impl Network {
    /// Builds a network and its parameters, initialised from `seed` by name.
    pub fn build(
        kind: ModelKind,
        image_size: usize,
        classes: usize,
        seed: u64,
        dtype: DType,
        device: &Device,
    ) -> Result<(Network, Parameters)> {
        let mut parameters = Parameters::default();
        let builder = &mut Builder::new(&mut parameters, seed, dtype, device);
        let network = Network::built(kind, image_size, classes, builder)?;
        Ok((network, parameters))
    }

    /// The same network with zeros for parameters, on the CPU: its shapes, in no time and memory.
    pub fn of_zeros(
        kind: ModelKind,
        image_size: usize,
        classes: usize,
        dtype: DType,
    ) -> Result<(Network, Parameters)> {
        let mut parameters = Parameters::default();
        let builder = Builder::new(&mut parameters, 0, dtype, &Device::Cpu);
        let network = Network::built(kind, image_size, classes, &mut builder.of_zeros())?;
        Ok((network, parameters))
    }

    fn built(
        kind: ModelKind,
        image_size: usize,
        classes: usize,
        builder: &mut Builder,
    ) -> Result<Network> {
        if let Some(shape) = ImageShape::of(kind, image_size) {
            return shape.build(builder, classes);
        }
        Ok(match kind {
            ModelKind::Texts(model) if model.size.task() == Task::TokenCompression => {
                Network::Compressor(Compressor::build(builder, model.compressor())?)
            }
            ModelKind::Texts(model) if model.size.task() == Task::LanguageModel => {
                Network::Gpt(Gpt::build(builder, model.shape())?)
            }
            ModelKind::Texts(model) => {
                Network::TextEncoder(TextEncoder::build(builder, model.shape(), classes)?)
            }
            other => {
                return Err(TapeError::Shape {
                    op: "build",
                    what: other.name().to_owned(),
                    expected: "that of its folder".to_owned(),
                    found: ().into(),
                });
            }
        })
    }

    /// Trained parameters of such a network.
    pub fn count(kind: ModelKind, image_size: u32, classes: usize) -> Result<u64> {
        let (_, parameters) = Network::of_zeros(kind, image_size as usize, classes, DType::F32)?;
        Ok(parameters.count() as u64)
    }

    /// Blocks of such a network that can be checkpointed; a published one's are known to its folder.
    pub fn blocks(kind: ModelKind, image_size: u32) -> u32 {
        if let ModelKind::Texts(model) = kind {
            return model.blocks();
        }
        ImageShape::of(kind, image_size as usize).map_or(0, |shape| shape.blocks() as u32)
    }

    /// Blocks of this network.
    pub fn depth(&self) -> u32 {
        match self {
            Network::ResNet(network) => network.depth() as u32,
            Network::Vit(network) => network.depth() as u32,
            Network::TextEncoder(network) => network.depth() as u32,
            Network::Gpt(network) => network.depth() as u32,
            Network::Compressor(network) => network.depth() as u32,
        }
    }

    /// Class scores [samples, classes] of `images` [samples, 3, side, side]; the first `checkpointed` blocks keep their
    /// input only.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        match self {
            Network::ResNet(network) => network.forward(tape, images, checkpointed),
            Network::Vit(network) => network.forward(tape, images, checkpointed),
            Network::TextEncoder(_) | Network::Gpt(_) | Network::Compressor(_) => {
                Err(TapeError::Shape {
                    op: "forward",
                    what: "images".to_owned(),
                    expected: "tokens, for a network of texts".to_owned(),
                    found: images.tensor().shape().clone(),
                })
            }
        }
    }
}
