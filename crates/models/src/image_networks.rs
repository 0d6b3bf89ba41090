//! Image networks, one per file, each with its published format and its ONNX graph.

mod convnext;
mod resnet;
mod vit;

pub(crate) use convnext::{ConvNextArchitecture, HubConvNext};
pub(crate) use resnet::{HubResNet, ResNetArchitecture};
pub use resnet::{
    ResNet, ResNetBranch, ResNetNorm, ResNetShape, ResNetStem, ResNetStyle, saves_last_convolution,
};
pub(crate) use vit::{HubVit, VitArchitecture, VitFamily, VitPooling, VitStyle, VitTokens};
pub use vit::{Vit, VitShape};
