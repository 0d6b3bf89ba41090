//! The formats of pretrained weights that Ebb reads: one row of [`FORMATS`] for each `model_type`.

use super::bert::HubBert;
use super::gpt2::HubGpt2;
use super::hub_network::HubNetwork;
use super::json_config::JsonConfig;
use super::resnet::HubResNet;
use super::tensor_index::TensorIndex;
use super::vit::{HubVit, VitFamily};
use crate::catalog::PretrainedFamily;
use crate::error::Result;
use std::path::Path;

/// A pretrained network, described by its folder.
#[derive(Debug, Clone, PartialEq)]
pub enum HubArchitecture {
    /// A BERT encoder.
    Bert(HubBert),
    /// A vision transformer.
    Vit(HubVit),
    /// A residual network with frozen BatchNorm.
    ResNet(HubResNet),
    /// A GPT-2.
    Gpt2(HubGpt2),
}

/// Reads the description of a network from its folder, `config.json` and tensors.
type Read = fn(&Path, &JsonConfig, &TensorIndex) -> Result<HubArchitecture>;

/// The formats, by the `model_type` that is the family's name.
const FORMATS: &[(PretrainedFamily, Read)] = &[
    (PretrainedFamily::Bert, |folder, config, tensors| {
        HubBert::read(folder, config, tensors).map(HubArchitecture::Bert)
    }),
    (PretrainedFamily::Vit, |_, config, tensors| {
        HubVit::read(VitFamily::Vit, config, tensors).map(HubArchitecture::Vit)
    }),
    (PretrainedFamily::Deit, |_, config, tensors| {
        HubVit::read(VitFamily::Deit, config, tensors).map(HubArchitecture::Vit)
    }),
    (PretrainedFamily::Dinov2, |_, config, tensors| {
        HubVit::read(VitFamily::Dinov2, config, tensors).map(HubArchitecture::Vit)
    }),
    (PretrainedFamily::ResNet, |_, config, _| {
        HubResNet::read(config).map(HubArchitecture::ResNet)
    }),
    (PretrainedFamily::Gpt2, |_, config, _| {
        HubGpt2::read(config).map(HubArchitecture::Gpt2)
    }),
];

impl HubArchitecture {
    pub(super) fn read(folder: &Path, config: &JsonConfig, tensors: &TensorIndex) -> Result<Self> {
        let model_type = config.text("model_type", "");
        let found = FORMATS.iter().find(|row| row.0.name() == model_type);
        let Some((_, read)) = found else {
            let names: Vec<&str> = FORMATS.iter().map(|row| row.0.name()).collect();
            let reason = format!(
                "model_type is {model_type:?}, but Ebb supports {}",
                names.join(", ")
            );
            return Err(config.refuse(reason));
        };
        read(folder, config, tensors)
    }

    /// Its properties.
    pub(crate) fn network(&self) -> &dyn HubNetwork {
        match self {
            HubArchitecture::Bert(network) => network,
            HubArchitecture::Vit(network) => network,
            HubArchitecture::ResNet(network) => network,
            HubArchitecture::Gpt2(network) => network,
        }
    }
}
