//! A network of any kind, built from its row in the catalog.

use crate::builder::Builder;
use crate::catalog::{Architecture, ModelId};
use crate::compressor::Compressor;
use crate::gpt::Gpt;
use crate::image_shape::ImageShape;
use crate::resnet::ResNet;
use crate::text_encoder::TextEncoder;
use crate::vit::Vit;
use candle_core::{DType, Device};
use tape::{Parameters, Result, Tape, TapeError, Value};

/// A network for images, texts or documents. It holds the ids of its parameters, not their values.
#[derive(Debug, Clone)]
pub enum Network {
    /// Residual network for images.
    ResNet(ResNet),
    /// Vision transformer.
    Vit(Vit),
    /// Text encoder with a head for classes.
    TextEncoder(TextEncoder),
    /// Language model.
    Gpt(Gpt),
    /// Language model that fills gaps, with the policy that makes them.
    Compressor(Compressor),
}

impl Network {
    /// Builds a network with random parameters. `input_size` is the side of images in pixels; text
    /// networks have their length in `model`. `outputs` counts classes and regression targets.
    ///
    /// # Errors
    /// `model` is pretrained, so only its folder describes it; the device cannot allocate the
    /// parameters.
    pub fn build(
        model: ModelId,
        input_size: usize,
        outputs: usize,
        seed: u64,
        dtype: DType,
        device: &Device,
    ) -> Result<(Network, Parameters)> {
        let mut parameters = Parameters::default();
        let builder = &mut Builder::new(&mut parameters, seed, dtype, device);
        let network = Network::build_with(builder, model, input_size, outputs)?;
        Ok((network, parameters))
    }

    /// Like [`Network::build`] with zeros for parameters, on the CPU. Takes neither time nor
    /// memory.
    pub fn with_zeros(
        model: ModelId,
        input_size: usize,
        outputs: usize,
        dtype: DType,
    ) -> Result<(Network, Parameters)> {
        let mut parameters = Parameters::default();
        let builder = Builder::new(&mut parameters, 0, dtype, &Device::Cpu);
        let network = Network::build_with(&mut builder.with_zeros(), model, input_size, outputs)?;
        Ok((network, parameters))
    }

    fn build_with(
        b: &mut Builder,
        model: ModelId,
        input_size: usize,
        outputs: usize,
    ) -> Result<Network> {
        let unknown = || TapeError::Shape {
            op: "build",
            what: model.name().to_owned(),
            expected: "the shape in its folder".to_owned(),
            found: ().into(),
        };
        Ok(match model.entry().architecture {
            Architecture::Image(shape) => match shape(input_size) {
                ImageShape::ResNet(shape, style) => {
                    Network::ResNet(ResNet::with_style(b, &shape, style, outputs)?)
                }
                ImageShape::Vit(shape) => Network::Vit(Vit::build(b, shape, outputs)?),
            },
            Architecture::TextEncoder(_) => {
                let shape = model.text_shape().ok_or_else(unknown)?;
                Network::TextEncoder(TextEncoder::build(b, shape, outputs)?)
            }
            Architecture::Gpt(_) => {
                let shape = model.text_shape().ok_or_else(unknown)?;
                Network::Gpt(Gpt::build(b, shape)?)
            }
            Architecture::Compressor { .. } => {
                let shape = model.compressor_shape().ok_or_else(unknown)?;
                Network::Compressor(Compressor::build(b, shape)?)
            }
            Architecture::HubFolder => return Err(unknown()),
        })
    }

    /// Number of trained parameters of such a network.
    pub fn count_parameters(model: ModelId, input_size: u32, outputs: usize) -> Result<u64> {
        let (_, parameters) = Network::with_zeros(model, input_size as usize, outputs, DType::F32)?;
        Ok(parameters.count() as u64)
    }

    /// Number of blocks of this network.
    pub fn depth(&self) -> u32 {
        let depth = match self {
            Network::ResNet(network) => network.depth(),
            Network::Vit(network) => network.depth(),
            Network::TextEncoder(network) => network.depth(),
            Network::Gpt(network) => network.depth(),
            Network::Compressor(network) => network.depth(),
        };
        depth as u32
    }

    /// Maps `images` [samples, 3, side, side] to outputs [samples, outputs]. The first
    /// `checkpointed` blocks save only their input.
    ///
    /// # Errors
    /// The network is for texts, or the images do not fit.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        match self {
            Network::ResNet(network) => network.forward(tape, images, checkpointed),
            Network::Vit(network) => network.forward(tape, images, checkpointed),
            Network::TextEncoder(_) | Network::Gpt(_) | Network::Compressor(_) => {
                Err(TapeError::Shape {
                    op: "forward",
                    what: "images".to_owned(),
                    expected: "tokens, for a text network".to_owned(),
                    found: images.tensor().shape().clone(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ImageModel;

    /// Parameter counts without the head, as published. Ebb's transformers have no key bias, which
    /// does not change attention.
    #[test]
    fn networks_have_the_parameter_counts_of_their_papers() {
        let check = |model: ImageModel, features: u64, published: u64| {
            let model = ModelId::Image(model);
            let classes = 1000;
            let all = Network::count_parameters(model, 224, classes as usize);
            let body = all.map(|all| all - classes * (features + 1));
            let key_biases = match model.image_shape(224) {
                Some(ImageShape::Vit(shape)) => shape.depth * shape.width,
                _ => 0,
            };
            let expected = published - key_biases as u64;
            assert_eq!(body.ok(), Some(expected), "{}", model.label());
        };
        check(ImageModel::ResNet18, 512, 11_176_512);
        check(ImageModel::ResNet34, 512, 21_284_672);
        check(ImageModel::ResNet50, 2048, 23_508_032);
        check(ImageModel::VitTiny, 192, 5_524_416);
        check(ImageModel::VitSmall, 384, 21_665_664);
        check(ImageModel::VitBase, 768, 85_798_656);
    }
}
