//! Sizes of a residual network, its stem, its branches and its norms.

use crate::layers::ConvSize;
use tape::Activation;

/// Sizes of a residual network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResNetShape {
    /// Layers before the first block.
    pub stem: ResNetStem,
    /// Output channels of the stem.
    pub channels: usize,
    /// Channels and stride of each block.
    pub blocks: Vec<(usize, usize)>,
    /// Groups of each GroupNorm.
    pub groups: usize,
    /// Activation after each norm.
    pub activation: Activation,
}

/// Side of the kernels of a block.
pub(super) const KERNEL: usize = 3;

/// Layers before the first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResNetStem {
    /// 3x3 at full resolution: for small images.
    Plain,
    /// 7x7 with stride 2, then max pooling with stride 2: for images of 224 px.
    Pooled,
}

/// Branches and norms of a residual network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResNetStyle {
    /// Convolutions of a block.
    pub branch: ResNetBranch,
    /// Norm after each convolution.
    pub norm: ResNetNorm,
}

/// Convolutions of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResNetBranch {
    /// Two convolutions of 3x3, the first one strided.
    Basic,
    /// 1x1 to a quarter of the channels, 3x3, 1x1: for deeper networks.
    Bottleneck {
        /// Index of the strided convolution: 0 or 1.
        strided: usize,
    },
}

/// Norm after each convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResNetNorm {
    /// GroupNorm.
    Group,
    /// One factor and one term per channel: BatchNorm with the statistics it was published with.
    Frozen,
}

impl ResNetStyle {
    /// Basic blocks with GroupNorm.
    pub(crate) const BASIC: ResNetStyle = ResNetStyle {
        branch: ResNetBranch::Basic,
        norm: ResNetNorm::Group,
    };
    /// Bottlenecks with GroupNorm.
    pub(crate) const BOTTLENECK: ResNetStyle = ResNetStyle {
        branch: ResNetBranch::Bottleneck { strided: 1 },
        norm: ResNetNorm::Group,
    };
}

impl ResNetBranch {
    /// The convolutions of a block in order.
    pub(crate) fn convolutions(
        self,
        inputs: usize,
        outputs: usize,
        stride: usize,
    ) -> Vec<ConvSize> {
        let size = |inputs, outputs, kernel, stride| ConvSize {
            inputs,
            outputs,
            kernel,
            stride,
        };
        match self {
            ResNetBranch::Basic => vec![
                size(inputs, outputs, KERNEL, stride),
                size(outputs, outputs, KERNEL, 1),
            ],
            ResNetBranch::Bottleneck { strided } => {
                let inner = outputs / 4;
                let mut convolutions = vec![
                    size(inputs, inner, 1, 1),
                    size(inner, inner, KERNEL, 1),
                    size(inner, outputs, 1, 1),
                ];
                convolutions[strided.min(1)].stride = stride;
                convolutions
            }
        }
    }
}

impl ResNetShape {
    /// The small ConvNet: four blocks, 1.2 M parameters, for images of 32 to 128 px.
    pub fn convnet() -> Self {
        ResNetShape {
            stem: ResNetStem::Plain,
            channels: 32,
            blocks: vec![(32, 2), (64, 2), (128, 2), (256, 2)],
            groups: 8,
            activation: Activation::Gelu,
        }
    }

    /// ResNet-18 (He et al. 2016): 11.2 M parameters without the head.
    pub fn resnet18() -> Self {
        ResNetShape::from_stages([64, 128, 256, 512], [2, 2, 2, 2])
    }

    /// ResNet-34 (He et al. 2016): 21.3 M parameters without the head.
    pub fn resnet34() -> Self {
        ResNetShape::from_stages([64, 128, 256, 512], [3, 4, 6, 3])
    }

    /// ResNet-50 (He et al. 2016), for [`ResNetStyle::BOTTLENECK`]: 23.5 M parameters without the
    /// head.
    pub fn resnet50() -> Self {
        ResNetShape::from_stages([256, 512, 1024, 2048], [3, 4, 6, 3])
    }

    /// Four stages of `blocks` blocks with `channels` channels. The first block of each stage but
    /// the first halves the side.
    fn from_stages(channels: [usize; 4], blocks: [usize; 4]) -> Self {
        let stages = channels.into_iter().zip(blocks).enumerate();
        let strided = stages.flat_map(|(stage, (channels, blocks))| {
            (0..blocks).map(move |block| (channels, if stage > 0 && block == 0 { 2 } else { 1 }))
        });
        ResNetShape {
            stem: ResNetStem::Pooled,
            channels: 64,
            blocks: strided.collect(),
            groups: 32,
            activation: Activation::Relu,
        }
    }
}
