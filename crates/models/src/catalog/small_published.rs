//! Small networks in the styles of the published families, with random weights. The device check
//! compares them: exact GELU, norms after each residual sum, factors per channel, frozen batch
//! norms, poolers and adapters occur in no network that is trained from scratch.

use super::PretrainedFamily;
use crate::gpt::Gpt;
use crate::hub_format::{HubDecoder, JsonConfig};
use crate::image_network::ImageArchitecture;
use crate::image_networks::{
    ConvNextArchitecture, ResNet, ResNetBranch, ResNetNorm, ResNetShape, ResNetStem, ResNetStyle,
    Vit, VitPooling, VitShape, VitStyle, VitTokens,
};
use crate::network::Network;
use crate::parameter_builder::{AdapterShape, ParameterBuilder};
use crate::text_backbone::SequenceShape;
use crate::text_encoder::{Pooling, TextEncoder, TextEncoderStyle};
use crate::transformer::{BlockShape, Gelu, NormPlacement, ResidualScale};
use candle_core::{DType, Device};
use serde_json::json;
use std::sync::Arc;
use tape::{Activation, Parameters, Result};

const WIDTH: usize = 64;
const DEPTH: usize = 2;
const HEADS: usize = 4;
/// Side of the patches of vision transformers, in pixels.
const PATCH: usize = 8;
/// Added to the variance by all norms.
const EPSILON: f64 = 1e-6;
/// Of the adapters of language models.
const ADAPTER: AdapterShape = AdapterShape::new(4, 8.0);

/// Inputs and outputs of a small network.
#[derive(Debug, Clone, Copy)]
pub struct SmallSizes {
    /// Side of images in pixels; a multiple of 8.
    pub image_size: usize,
    /// Most tokens of a text.
    pub tokens: usize,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Number of outputs; language models ignore it.
    pub outputs: usize,
}

impl PretrainedFamily {
    /// A small network in the style of this family with random parameters in f32 on the CPU.
    /// Language models have adapters, because without them GPT-2 is the network that is trained
    /// from scratch.
    ///
    /// # Errors
    /// The parameters cannot be allocated.
    pub fn small_network(self, sizes: SmallSizes, seed: u64) -> Result<(Network, Parameters)> {
        let mut parameters = Parameters::default();
        let mut b = ParameterBuilder::new(&mut parameters, seed, DType::F32, &Device::Cpu);
        let network = match self {
            PretrainedFamily::Vit => {
                let style = vit_style(VitTokens::Class, VitPooling::Class);
                vit(&mut b, sizes, style)?
            }
            PretrainedFamily::Deit => {
                let tokens = VitTokens::ClassAndDistillation;
                vit(&mut b, sizes, vit_style(tokens, VitPooling::Class))?
            }
            PretrainedFamily::Dinov2 => {
                let mut style = vit_style(VitTokens::Class, VitPooling::ClassAndMean);
                style.block.scale = ResidualScale::PerChannel;
                vit(&mut b, sizes, style)?
            }
            PretrainedFamily::ResNet => resnet(&mut b, sizes.outputs)?,
            PretrainedFamily::ConvNext => Network::Image(convnext().build(&mut b, sizes.outputs)?),
            PretrainedFamily::Bert => bert(&mut b, sizes)?,
            PretrainedFamily::Gpt2 => gpt2(&mut b.with_adapters(Some(ADAPTER)), sizes)?,
            family => decoder(&mut b.with_adapters(Some(ADAPTER)), family, sizes)?,
        };
        Ok((network, parameters))
    }
}

/// A pre-norm block with the exact GELU.
fn block() -> BlockShape {
    BlockShape {
        epsilon: EPSILON,
        gelu: Gelu::Erf,
        ..BlockShape::pre_norm(WIDTH, HEADS)
    }
}

fn vit_style(tokens: VitTokens, pooling: VitPooling) -> VitStyle {
    VitStyle {
        block: block(),
        tokens,
        pooling,
    }
}

fn vit(b: &mut ParameterBuilder, sizes: SmallSizes, style: VitStyle) -> Result<Network> {
    let shape = VitShape {
        image: sizes.image_size,
        patch: PATCH,
        width: WIDTH,
        depth: DEPTH,
        heads: HEADS,
    };
    let network = Vit::with_style(b, shape, style, sizes.outputs)?;
    Ok(Network::Image(Arc::new(network)))
}

/// Bottlenecks with frozen batch norms.
fn resnet(b: &mut ParameterBuilder, outputs: usize) -> Result<Network> {
    let shape = ResNetShape {
        stem: ResNetStem::Pooled,
        channels: 16,
        blocks: vec![(32, 1), (64, 2)],
        groups: 1,
        activation: Activation::Relu,
    };
    let style = ResNetStyle {
        branch: ResNetBranch::Bottleneck { strided: 1 },
        norm: ResNetNorm::Frozen,
    };
    let network = ResNet::with_style(b, &shape, style, outputs)?;
    Ok(Network::Image(Arc::new(network)))
}

/// The factors begin larger than in a published network, so that the blocks take part.
fn convnext() -> ConvNextArchitecture {
    ConvNextArchitecture {
        widths: vec![16, 32],
        depths: vec![1, 2],
        patch: 4,
        gelu: Gelu::Erf,
        layer_scale: Some(0.5),
        last_epsilon: EPSILON,
    }
}

fn sequence(sizes: SmallSizes) -> SequenceShape {
    SequenceShape {
        tokens: sizes.tokens,
        vocabulary: sizes.vocabulary,
        width: WIDTH,
        depth: DEPTH,
        heads: HEADS,
    }
}

fn bert(b: &mut ParameterBuilder, sizes: SmallSizes) -> Result<Network> {
    let style = TextEncoderStyle {
        block: BlockShape {
            norms: NormPlacement::After,
            ..block()
        },
        token_types: 2,
        pooling: Pooling::Pooler,
    };
    let network = TextEncoder::with_style(b, sequence(sizes), style, sizes.outputs)?;
    Ok(Network::TextEncoder(network))
}

/// A decoder of four layers, so that each kind of layer of its family occurs.
fn decoder(
    b: &mut ParameterBuilder,
    family: PretrainedFamily,
    sizes: SmallSizes,
) -> Result<Network> {
    let mut config = json!({
        "model_type": family.name(),
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.tokens,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "sliding_window": 5,
        "sliding_window_pattern": 2,
        "use_sliding_window": true,
        "max_window_layers": 2,
    });
    if family == PretrainedFamily::Llama {
        config["rope_scaling"] = json!({
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        });
    }
    let described = HubDecoder::read(&JsonConfig::from_values(config));
    let described = described.expect("a config of this file is right");
    Ok(Network::Gpt(Gpt::with_decoder(b, &described.shape)?))
}

fn gpt2(b: &mut ParameterBuilder, sizes: SmallSizes) -> Result<Network> {
    let block = BlockShape {
        causal: true,
        gelu: Gelu::Tanh,
        ..block()
    };
    Ok(Network::Gpt(Gpt::with_block(b, sequence(sizes), block)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_small_network() {
        let sizes = SmallSizes {
            image_size: 32,
            tokens: 24,
            vocabulary: 64,
            outputs: 5,
        };
        for family in PretrainedFamily::all() {
            let (network, parameters) = family.small_network(sizes, 3).expect("it is small");
            assert!(network.depth() > 0, "{}", family.name());
            assert!(parameters.count() < 200_000, "{}", family.name());
        }
        let (_, adapted) = PretrainedFamily::Gpt2
            .small_network(sizes, 3)
            .expect("it is small");
        assert!(adapted.iter().any(|p| crate::lora::is_adapter(&p.name)));
    }
}
