//! The kinds of networks that a folder of pretrained weights can hold.

use super::bert::HubBert;
use super::decoder::HubDecoder;
use super::gpt2::HubGpt2;
use super::hub_network::{HubImageNetwork, HubNetwork};
use super::json_config::JsonConfig;
use super::safetensors_reader::TensorIndex;
use crate::error::Result;
use std::path::Path;
use std::sync::Arc;

/// A pretrained network, described by its folder.
#[derive(Debug, Clone)]
pub enum HubArchitecture {
    /// An image network.
    Image(Arc<dyn HubImageNetwork>),
    /// A BERT encoder.
    Bert(HubBert),
    /// A GPT-2.
    Gpt2(HubGpt2),
    /// One of the newer language models.
    Decoder(Arc<HubDecoder>),
}

/// Reads the description of a network from its folder, `config.json` and tensors.
pub(crate) type ReadArchitecture = fn(&Path, &JsonConfig, &TensorIndex) -> Result<HubArchitecture>;

impl HubArchitecture {
    /// An image network.
    pub(crate) fn for_image(network: impl HubImageNetwork + 'static) -> Self {
        HubArchitecture::Image(Arc::new(network))
    }

    /// One of the newer language models.
    pub(crate) fn for_decoder(network: HubDecoder) -> Self {
        HubArchitecture::Decoder(Arc::new(network))
    }

    /// Its properties.
    pub(crate) fn network(&self) -> &dyn HubNetwork {
        match self {
            HubArchitecture::Image(network) => &**network,
            HubArchitecture::Bert(network) => network,
            HubArchitecture::Gpt2(network) => network,
            HubArchitecture::Decoder(network) => &**network,
        }
    }
}
