//! What a residual network is made of: its sizes, its stem, its branches and what follows a convolution. Refuses to know how it runs.

use tape::Activation;

/// Widths and depths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResNetShape {
    /// How an image enters.
    pub stem: Stem,
    /// Channels of the stem.
    pub channels: usize,
    /// Channels and stride of each block.
    pub blocks: Vec<(usize, usize)>,
    /// Groups of each norm.
    pub groups: usize,
    /// What follows each norm.
    pub activation: Activation,
}

/// Side of a block's kernels.
pub(super) const KERNEL: usize = 3;

/// How an image enters the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stem {
    /// 3x3 at full size: small photographs.
    Plain,
    /// 7x7 with stride 2, then max pooling with stride 2: photographs of 224 px.
    Pooled,
}

/// What a residual network is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResNetStyle {
    /// What a block's branch is.
    pub branch: Branch,
    /// What follows each convolution.
    pub norm: ResNetNorm,
}

/// What a block's branch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Branch {
    /// Two convolutions of 3x3, the first with the stride.
    Basic,
    /// 1x1 to a quarter of the channels, 3x3, 1x1: the deeper networks.
    Bottleneck {
        /// Which of the first two has the stride: 0 or 1.
        strided: usize,
    },
}

/// What follows each convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResNetNorm {
    /// GroupNorm.
    Group,
    /// One factor and one term a channel: BatchNorm with the statistics that it was published with.
    Frozen,
}

impl ResNetStyle {
    /// Ebb's own: basic blocks with GroupNorm.
    pub const OWN: ResNetStyle = ResNetStyle {
        branch: Branch::Basic,
        norm: ResNetNorm::Group,
    };
}

impl Branch {
    /// Outputs, side and stride of each convolution of a block.
    pub(crate) fn convolutions(self, outputs: usize, stride: usize) -> Vec<(usize, usize, usize)> {
        match self {
            Branch::Basic => vec![(outputs, KERNEL, stride), (outputs, KERNEL, 1)],
            Branch::Bottleneck { strided } => {
                let mut convolutions = vec![
                    (outputs / 4, 1, 1),
                    (outputs / 4, KERNEL, 1),
                    (outputs, 1, 1),
                ];
                convolutions[strided.min(1)].2 = stride;
                convolutions
            }
        }
    }
}

impl ResNetShape {
    /// The small ConvNet: four blocks, 1.2 M parameters, for photographs of 32 to 128 px trained from scratch.
    pub fn convnet() -> Self {
        ResNetShape {
            stem: Stem::Plain,
            channels: 32,
            blocks: vec![(32, 2), (64, 2), (128, 2), (256, 2)],
            groups: 8,
            activation: Activation::Gelu,
        }
    }

    /// ResNet-18 (He et al. 2016): 11.2 M parameters beside the head.
    pub fn resnet18() -> Self {
        ResNetShape::of_paper([64, 128, 256, 512], [2, 2, 2, 2])
    }

    /// ResNet-34 (He et al. 2016): 21.3 M parameters beside the head.
    pub fn resnet34() -> Self {
        ResNetShape::of_paper([64, 128, 256, 512], [3, 4, 6, 3])
    }

    /// ResNet-50 (He et al. 2016), to be built of bottlenecks: 23.5 M parameters beside the head.
    pub fn resnet50() -> Self {
        ResNetShape::of_paper([256, 512, 1024, 2048], [3, 4, 6, 3])
    }

    /// Four stages with these channels and blocks; the first block of all stages but the first halves the side.
    fn of_paper(channels: [usize; 4], blocks: [usize; 4]) -> Self {
        let stages = channels.into_iter().zip(blocks).enumerate();
        let strided = stages.flat_map(|(stage, (channels, blocks))| {
            (0..blocks).map(move |block| (channels, if stage > 0 && block == 0 { 2 } else { 1 }))
        });
        ResNetShape {
            stem: Stem::Pooled,
            channels: 64,
            blocks: strided.collect(),
            groups: 32,
            activation: Activation::Relu,
        }
    }
}
