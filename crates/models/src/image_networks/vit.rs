//! Vision transformer (Dosovitskiy et al. 2021), pre-norm, with a class token and learned
//! positions. Other styles are DeiT with its distillation token (Touvron et al. 2021) and DINOv2
//! (Oquab et al. 2023).

mod hub_format;
mod onnx;

pub(crate) use hub_format::{HubVit, VitFamily};

use crate::error::naming;
use crate::hub_format::HubNetwork;
use crate::image_network::{
    AttentionHeads, HubExport, HubTensors, ImageArchitecture, ImageNetwork,
};
use crate::layers::{LayerNorm, Linear};
use crate::onnx_graph::{Features, Graph};
use crate::parameter_builder::ParameterBuilder;
use crate::transformer::{BlockShape, Blocks, DEVIATION};
use std::sync::Arc;
use tape::{ParameterId, Result, Tape, Value};

/// Sizes of a vision transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VitShape {
    /// Side of the image in pixels; a multiple of `patch`.
    pub image: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Width of a token.
    pub width: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Number of heads; divides the width.
    pub heads: usize,
}

impl VitShape {
    /// ViT-Micro/8, for images of 32 to 128 px: 6 blocks of 128, 8-px patches, 1.2 M parameters.
    pub fn micro(image: usize) -> Self {
        VitShape {
            image,
            patch: 8,
            width: 128,
            depth: 6,
            heads: 4,
        }
    }

    /// ViT-Tiny/16: 12 blocks of 192, 5.5 M parameters.
    pub fn tiny(image: usize) -> Self {
        VitShape::with_width(image, 192)
    }

    /// ViT-Small/16: 12 blocks of 384, 21.7 M parameters.
    pub fn small(image: usize) -> Self {
        VitShape::with_width(image, 384)
    }

    /// ViT-Base/16 (Dosovitskiy et al. 2021): 12 blocks of 768, 85.8 M parameters.
    pub fn base(image: usize) -> Self {
        VitShape::with_width(image, 768)
    }

    /// 12 blocks with heads of 64 channels, 16-px patches.
    fn with_width(image: usize, width: usize) -> Self {
        VitShape {
            image,
            patch: 16,
            width,
            depth: 12,
            heads: width / 64,
        }
    }

    fn patches(&self) -> usize {
        (self.image / self.patch) * (self.image / self.patch)
    }
}

/// Blocks, extra tokens and pooling of a vision transformer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VitStyle {
    pub block: BlockShape,
    /// Tokens in addition to the patches.
    pub tokens: VitTokens,
    /// The vector that the head reads.
    pub pooling: VitPooling,
}

/// Tokens in addition to the patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VitTokens {
    Class,
    /// The class token, then the distillation token: DeiT.
    ClassAndDistillation,
}

/// The vector that the head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VitPooling {
    /// The class token.
    Class,
    /// The class token and the mean of the patches, concatenated: DINOv2.
    ClassAndMean,
    /// The class token and the distillation token, each with its own head; the scores are averaged:
    /// DeiT.
    ClassAndDistillation,
}

impl VitStyle {
    /// A transformer to train from scratch.
    pub fn from_scratch(shape: VitShape) -> Self {
        VitStyle {
            block: BlockShape {
                epsilon: EPSILON,
                ..BlockShape::pre_norm(shape.width, shape.heads)
            },
            tokens: VitTokens::Class,
            pooling: VitPooling::Class,
        }
    }
}

/// A vision transformer with a head for classes.
#[derive(Debug, Clone)]
pub struct Vit {
    shape: VitShape,
    patch: Linear,
    class_token: ParameterId,
    distillation_token: Option<ParameterId>,
    positions: ParameterId,
    blocks: Blocks,
    norm: LayerNorm,
    pooling: VitPooling,
    head: Linear,
    distillation_head: Option<Linear>,
}

/// Added to the variance by its norms.
const EPSILON: f64 = 1e-6;

impl Vit {
    /// Builds a network to train from scratch.
    pub fn build(b: &mut ParameterBuilder, shape: VitShape, classes: usize) -> Result<Self> {
        Vit::with_style(b, shape, VitStyle::from_scratch(shape), classes)
    }

    /// Builds a network with other blocks, tokens or pooling.
    pub(crate) fn with_style(
        b: &mut ParameterBuilder,
        shape: VitShape,
        style: VitStyle,
        classes: usize,
    ) -> Result<Self> {
        let (pixels, width) = (3 * shape.patch * shape.patch, shape.width);
        let before = match style.tokens {
            VitTokens::Class => 1,
            VitTokens::ClassAndDistillation => 2,
        };
        let features = match style.pooling {
            VitPooling::ClassAndMean => 2 * width,
            VitPooling::Class | VitPooling::ClassAndDistillation => width,
        };
        Ok(Vit {
            shape,
            // Patches do not overlap, so a linear map of their pixels is the usual convolution.
            patch: Linear::build(b, "patch", pixels, width, (1.0 / pixels as f64).sqrt())?,
            class_token: b.normal("class_token", &[width], DEVIATION)?,
            distillation_token: match style.tokens {
                VitTokens::Class => None,
                VitTokens::ClassAndDistillation => {
                    Some(b.normal("teacher_token", &[width], DEVIATION)?)
                }
            },
            positions: b.normal("positions", &[shape.patches() + before, width], DEVIATION)?,
            blocks: Blocks::build(b, style.block, shape.depth)?,
            norm: LayerNorm::build(b, "norm", width, style.block.epsilon)?,
            pooling: style.pooling,
            head: Linear::build(b, "head", features, classes, DEVIATION)?,
            distillation_head: match style.pooling {
                VitPooling::ClassAndDistillation => {
                    Some(Linear::build(b, "teacher_head", width, classes, DEVIATION)?)
                }
                VitPooling::Class | VitPooling::ClassAndMean => None,
            },
        })
    }

    /// Number of blocks.
    pub fn depth(&self) -> usize {
        self.shape.depth
    }

    /// Maps `images` [samples, 3, side, side] to class scores [samples, classes]. The first
    /// `checkpointed` blocks save only their input.
    ///
    /// # Errors
    /// The images do not have the side that the network was built for.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        let mut x = self.patch.forward(tape, &self.patches(tape, images)?)?;
        let tokens = [
            ("teacher_token", self.distillation_token),
            ("class_token", Some(self.class_token)),
        ];
        for (name, token) in tokens {
            if let Some(token) = token {
                x = naming(name, tape.prepend_token(&tape.parameter(token), &x))?;
            }
        }
        let x = naming(
            "positions",
            tape.add_repeated(&x, &tape.parameter(self.positions)),
        )?;
        let x = self.blocks.forward(tape, x, None, checkpointed)?;
        self.scores(tape, &x)
    }

    /// Class scores from the tokens `x` [samples, tokens, width] after the last block.
    fn scores(&self, tape: &Tape, x: &Value) -> Result<Value> {
        // The norm works on each token separately, so only the tokens that are read need it.
        let class = self.norm.forward(tape, &tape.first_token(x)?)?;
        let tokens = x.dims()[1];
        match (self.pooling, &self.distillation_head) {
            (VitPooling::Class, _) | (VitPooling::ClassAndDistillation, None) => {
                self.head.forward(tape, &class)
            }
            (VitPooling::ClassAndMean, _) => {
                let before = tokens - self.shape.patches();
                let patches = self
                    .norm
                    .forward(tape, &tape.narrow(x, 1, before..tokens)?)?;
                let mean = tape.mean_tokens(&patches)?;
                self.head
                    .forward(tape, &tape.concat_along(&[&class, &mean], 1)?)
            }
            (VitPooling::ClassAndDistillation, Some(head)) => {
                let distilled = tape.first_token(&tape.narrow(x, 1, 1..tokens)?)?;
                let distilled = self.norm.forward(tape, &distilled)?;
                let scores = tape.add(
                    &self.head.forward(tape, &class)?,
                    &head.forward(tape, &distilled)?,
                )?;
                tape.scale(&scores, 0.5)
            }
        }
    }

    /// Cuts images into rows of patch pixels, [samples, patches, 3 * patch * patch], without a
    /// gradient.
    fn patches(&self, tape: &Tape, images: &Value) -> Result<Value> {
        let (samples, channels, height, width) = images.tensor().dims4()?;
        let p = self.shape.patch;
        let cut = images
            .tensor()
            .reshape((samples, channels, height / p, p, width / p, p))?;
        let rows = tape.contiguous(&cut.permute((0, 2, 4, 1, 3, 5))?)?;
        Ok(Value::constant(rows.reshape((
            samples,
            self.shape.patches(),
            channels * p * p,
        ))?))
    }
}

impl ImageNetwork for Vit {
    fn depth(&self) -> usize {
        self.depth()
    }

    fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        self.forward(tape, images, checkpointed)
    }
}

/// The description of a vision transformer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VitArchitecture {
    shape: VitShape,
    style: VitStyle,
}

impl VitArchitecture {
    /// A transformer to train from scratch.
    pub fn from_scratch(shape: VitShape) -> Self {
        VitArchitecture {
            shape,
            style: VitStyle::from_scratch(shape),
        }
    }
}

impl ImageArchitecture for VitArchitecture {
    fn blocks(&self) -> usize {
        self.shape.depth
    }

    fn attention(&self) -> Option<AttentionHeads> {
        Some(AttentionHeads {
            width: self.shape.width,
            heads: self.shape.heads,
        })
    }

    fn build(&self, b: &mut ParameterBuilder, outputs: usize) -> Result<Arc<dyn ImageNetwork>> {
        let network = Vit::with_style(b, self.shape, self.style, outputs)?;
        Ok(Arc::new(network))
    }

    fn hub_export(&self) -> HubExport {
        HubExport {
            config: hub_format::vit_config(self.shape),
            tensors: HubTensors::Published(HubVit::from_scratch(self.shape, self.style).table()),
        }
    }

    fn onnx_features(&self, g: &mut Graph, images: &str) -> crate::error::Result<Features> {
        onnx::features(g, images, &self.shape, &self.style)
    }
}
