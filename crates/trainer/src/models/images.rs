//! Ebb's own networks for photographs by their sizes: which blocks, of what, how many.

use super::{Branch, ResNet, ResNetNorm, ResNetShape, ResNetStyle, Vit, VitShape};
use super::{Builder, Network};
use crate::plan::{ImageSize, ModelKind};
use tape::Result;

/// A network for photographs, before it is built.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageShape {
    /// Residual convolutions.
    ResNet(ResNetShape, ResNetStyle),
    /// Vision transformer.
    Vit(VitShape),
}

impl ImageShape {
    /// Of the network of that kind for images of `side` pixels; nothing where it is not Ebb's own, or for texts.
    pub fn of(kind: ModelKind, side: usize) -> Option<ImageShape> {
        let basic = |shape| ImageShape::ResNet(shape, ResNetStyle::OWN);
        let bottleneck = ResNetStyle {
            branch: Branch::Bottleneck { strided: 1 },
            norm: ResNetNorm::Group,
        };
        Some(match kind {
            ModelKind::ConvNet => basic(ResNetShape::convnet()),
            ModelKind::VitMicro => ImageShape::Vit(VitShape::micro(side)),
            ModelKind::Images(ImageSize::ResNet18) => basic(ResNetShape::resnet18()),
            ModelKind::Images(ImageSize::ResNet34) => basic(ResNetShape::resnet34()),
            ModelKind::Images(ImageSize::ResNet50) => {
                ImageShape::ResNet(ResNetShape::resnet50(), bottleneck)
            }
            ModelKind::Images(ImageSize::VitTiny) => ImageShape::Vit(VitShape::tiny(side)),
            ModelKind::Images(ImageSize::VitSmall) => ImageShape::Vit(VitShape::small(side)),
            ModelKind::Images(ImageSize::VitBase) => ImageShape::Vit(VitShape::base(side)),
            ModelKind::Texts(_) | ModelKind::Published(_) => return None,
        })
    }

    /// The network for `classes`.
    pub(super) fn build(&self, builder: &mut Builder, classes: usize) -> Result<Network> {
        Ok(match self {
            ImageShape::ResNet(shape, style) => {
                Network::ResNet(ResNet::styled(builder, shape, *style, classes)?)
            }
            ImageShape::Vit(shape) => Network::Vit(Vit::build(builder, *shape, classes)?),
        })
    }

    /// Blocks that can be checkpointed.
    pub fn blocks(&self) -> usize {
        match self {
            ImageShape::ResNet(shape, _) => shape.blocks.len(),
            ImageShape::Vit(shape) => shape.depth,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::models::{ImageShape, Network};
    use crate::plan::{ImageSize, ModelKind};

    /// Numbers beside the head, as the networks were published. A bias of keys changes no attention: Ebb's transformers have none.
    #[test]
    fn each_network_has_as_many_parameters_as_its_paper() {
        let check = |size: ImageSize, features: u64, published: u64| {
            let kind = ModelKind::Images(size);
            let classes = 1000;
            let all = Network::count(kind, 224, classes as usize);
            let body = all.map(|all| all - classes * (features + 1));
            let key_biases = match ImageShape::of(kind, 224) {
                Some(ImageShape::Vit(shape)) => shape.depth * shape.width,
                _ => 0,
            };
            let expected = published - key_biases as u64;
            assert_eq!(body.ok(), Some(expected), "{}", size.label());
        };
        check(ImageSize::ResNet18, 512, 11_176_512);
        check(ImageSize::ResNet34, 512, 21_284_672);
        check(ImageSize::ResNet50, 2048, 23_508_032);
        check(ImageSize::VitTiny, 192, 5_524_416);
        check(ImageSize::VitSmall, 384, 21_665_664);
        check(ImageSize::VitBase, 768, 85_798_656);
    }
}
