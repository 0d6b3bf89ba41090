//! Builds networks by their row in the catalog, and opens folders of the formats in it.

use super::{Architecture, ModelId, PretrainedFamily};
use crate::error;
use crate::gpt::Gpt;
use crate::hub_format::HubFolder;
use crate::network::Network;
use crate::parameter_builder::ParameterBuilder;
use crate::text_encoder::TextEncoder;
use crate::token_compressor::Compressor;
use candle_core::{DType, Device};
use std::path::Path;
use tape::{Parameters, Result, TapeError};

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
        let builder = &mut ParameterBuilder::new(&mut parameters, seed, dtype, device);
        let network = Network::build_with(builder, model, input_size, outputs)?;
        Ok((network, parameters))
    }

    /// Like [`Network::build`] with zeros for parameters, on the CPU. Takes neither time nor
    /// memory.
    ///
    /// # Errors
    /// As [`Network::build`].
    pub fn with_zeros(
        model: ModelId,
        input_size: usize,
        outputs: usize,
        dtype: DType,
    ) -> Result<(Network, Parameters)> {
        let mut parameters = Parameters::default();
        let builder = ParameterBuilder::new(&mut parameters, 0, dtype, &Device::Cpu);
        let network = Network::build_with(&mut builder.with_zeros(), model, input_size, outputs)?;
        Ok((network, parameters))
    }

    /// Like [`Network::build`] with the parameters of `b`.
    ///
    /// # Errors
    /// As [`Network::build`].
    pub fn build_with(
        b: &mut ParameterBuilder,
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
            Architecture::Image(describe) => {
                Network::Image(describe(input_size).build(b, outputs)?)
            }
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
            Architecture::HubFolder(_) => return Err(unknown()),
        })
    }

    /// Number of trained parameters of such a network.
    ///
    /// # Errors
    /// As [`Network::build`].
    pub fn count_parameters(model: ModelId, input_size: u32, outputs: usize) -> Result<u64> {
        let (_, parameters) = Network::with_zeros(model, input_size as usize, outputs, DType::F32)?;
        Ok(parameters.count() as u64)
    }
}

impl HubFolder {
    /// Reads the JSON files and tensor headers of a folder.
    ///
    /// # Errors
    /// [`HubFolder`](crate::ModelError::HubFolder) if it is not such a folder, is damaged, or
    /// describes a network that Ebb cannot express; [`Pickled`](crate::ModelError::Pickled) if its
    /// weights are only in pickled files.
    pub fn open(folder: &Path) -> error::Result<Self> {
        HubFolder::read(folder, |config, tensors| {
            let model_type = config.text("model_type", "");
            let found = PretrainedFamily::from_name(model_type);
            let Some(Architecture::HubFolder(read)) = found.map(|f| f.entry().architecture) else {
                let names: Vec<&str> = PretrainedFamily::all().map(|f| f.name()).collect();
                let reason = format!(
                    "model_type is {model_type:?}, but Ebb supports only {}",
                    names.join(", ")
                );
                return Err(config.refuse(reason));
            };
            read(folder, config, tensors)
        })
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
            let attention = model.attention(224);
            let key_biases = attention.map_or(0, |a| a.width * model.blocks() as usize);
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
