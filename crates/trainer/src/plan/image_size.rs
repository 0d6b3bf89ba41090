//! Networks for photographs in the sizes of their papers, by the names that the user writes.

/// Sizes of networks for photographs, as their papers have them; trained best at 224 px.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageSize {
    /// 18 layers, 11 million parameters.
    ResNet18,
    /// 34 layers, 21 million.
    ResNet34,
    /// 50 layers in bottlenecks, 24 million.
    ResNet50,
    /// 12 blocks of 192, 5.5 million.
    VitTiny,
    /// 12 blocks of 384, 22 million.
    VitSmall,
    /// 12 blocks of 768, 86 million.
    VitBase,
}

impl ImageSize {
    /// All of them.
    pub const ALL: [ImageSize; 6] = [
        ImageSize::ResNet18,
        ImageSize::ResNet34,
        ImageSize::ResNet50,
        ImageSize::VitTiny,
        ImageSize::VitSmall,
        ImageSize::VitBase,
    ];

    /// The name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ImageSize::ResNet18 => "resnet18",
            ImageSize::ResNet34 => "resnet34",
            ImageSize::ResNet50 => "resnet50",
            ImageSize::VitTiny => "vit_tiny",
            ImageSize::VitSmall => "vit_small",
            ImageSize::VitBase => "vit_base",
        }
    }

    /// The name shown.
    pub fn label(self) -> &'static str {
        match self {
            ImageSize::ResNet18 => "ResNet-18",
            ImageSize::ResNet34 => "ResNet-34",
            ImageSize::ResNet50 => "ResNet-50",
            ImageSize::VitTiny => "ViT-Tiny/16",
            ImageSize::VitSmall => "ViT-Small/16",
            ImageSize::VitBase => "ViT-Base/16",
        }
    }

    /// The image side must be a multiple of this.
    pub(super) fn multiple(self) -> u32 {
        match self {
            ImageSize::ResNet18 | ImageSize::ResNet34 | ImageSize::ResNet50 => 1,
            ImageSize::VitTiny | ImageSize::VitSmall | ImageSize::VitBase => 16,
        }
    }
}
