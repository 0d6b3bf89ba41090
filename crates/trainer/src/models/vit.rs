//! Vision transformer (Dosovitskiy et al. 2021), pre-norm, with a class token and learnt positions. In other styles it is DeiT
//! with its second token (Touvron et al. 2021) and DINOv2 (Oquab et al. 2023).

use super::layers::of;
use super::transformer::{BlockShape, Blocks, DEVIATION};
use super::{Builder, LayerNorm, Linear};
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
    /// Blocks.
    pub depth: usize,
    /// Heads; they divide the width.
    pub heads: usize,
}

impl VitShape {
    /// A small transformer for photographs of 32 to 128 px: 6 blocks of 128, 8-px patches, 1.2 M parameters.
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
        VitShape::of_paper(image, 192)
    }

    /// ViT-Small/16: 12 blocks of 384, 21.7 M parameters.
    pub fn small(image: usize) -> Self {
        VitShape::of_paper(image, 384)
    }

    /// ViT-Base/16 (Dosovitskiy et al. 2021): 12 blocks of 768, 85.8 M parameters.
    pub fn base(image: usize) -> Self {
        VitShape::of_paper(image, 768)
    }

    /// 12 blocks with heads of 64, patches of 16 px.
    fn of_paper(image: usize, width: usize) -> Self {
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

/// What a vision transformer is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VitStyle {
    /// One block.
    pub block: BlockShape,
    /// Tokens beside the patches.
    pub tokens: VitTokens,
    /// What the classes are told from.
    pub reads: VitReads,
}

/// Tokens beside the patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VitTokens {
    /// The class token.
    Class,
    /// The class token, and behind it the one that learnt from a teacher: DeiT.
    ClassAndTeacher,
}

/// What the classes are told from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VitReads {
    /// The class token.
    Class,
    /// The class token and the mean of the patches, side by side: DINOv2.
    ClassAndMean,
    /// The class token by one map and the teacher's by another, their scores averaged: DeiT.
    ClassAndTeacher,
}

impl VitStyle {
    /// Ebb's own transformer of that shape.
    pub fn own(shape: VitShape) -> Self {
        VitStyle {
            block: BlockShape {
                epsilon: EPSILON,
                ..BlockShape::pre_norm(shape.width, shape.heads)
            },
            tokens: VitTokens::Class,
            reads: VitReads::Class,
        }
    }
}

/// The network.
#[derive(Debug, Clone)]
pub struct Vit {
    shape: VitShape,
    patch: Linear,
    class_token: ParameterId,
    teacher_token: Option<ParameterId>,
    positions: ParameterId,
    blocks: Blocks,
    norm: LayerNorm,
    reads: VitReads,
    head: Linear,
    teacher_head: Option<Linear>,
}

/// Added to a variance.
const EPSILON: f64 = 1e-6;

impl Vit {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: VitShape, classes: usize) -> Result<Self> {
        Vit::styled(b, shape, VitStyle::own(shape), classes)
    }

    /// Builds the network for `classes` of other blocks, tokens or head.
    pub fn styled(
        b: &mut Builder,
        shape: VitShape,
        style: VitStyle,
        classes: usize,
    ) -> Result<Self> {
        let (pixels, width) = (3 * shape.patch * shape.patch, shape.width);
        let before = match style.tokens {
            VitTokens::Class => 1,
            VitTokens::ClassAndTeacher => 2,
        };
        let features = match style.reads {
            VitReads::ClassAndMean => 2 * width,
            VitReads::Class | VitReads::ClassAndTeacher => width,
        };
        Ok(Vit {
            shape,
            // One patch is one row of a linear map: its first values follow its own inputs.
            patch: Linear::build(b, "patch", pixels, width, (1.0 / pixels as f64).sqrt())?,
            class_token: b.normal("class_token", &[width], DEVIATION)?,
            teacher_token: match style.tokens {
                VitTokens::Class => None,
                VitTokens::ClassAndTeacher => {
                    Some(b.normal("teacher_token", &[width], DEVIATION)?)
                }
            },
            positions: b.normal("positions", &[shape.patches() + before, width], DEVIATION)?,
            blocks: Blocks::build(b, style.block, shape.depth)?,
            norm: LayerNorm::build(b, "norm", width, style.block.epsilon)?,
            reads: style.reads,
            head: Linear::build(b, "head", features, classes, DEVIATION)?,
            teacher_head: match style.reads {
                VitReads::ClassAndTeacher => {
                    Some(Linear::build(b, "teacher_head", width, classes, DEVIATION)?)
                }
                VitReads::Class | VitReads::ClassAndMean => None,
            },
        })
    }

    /// Blocks.
    pub fn depth(&self) -> usize {
        self.shape.depth
    }

    /// [samples, 3, side, side] to [samples, classes]; the first `checkpointed` blocks keep their input only.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        let mut x = self.patch.forward(tape, &self.patches(images)?)?;
        let tokens = [
            ("teacher_token", self.teacher_token),
            ("class_token", Some(self.class_token)),
        ];
        for (name, token) in tokens {
            if let Some(token) = token {
                x = of(name, tape.prepend_token(&tape.parameter(token), &x))?;
            }
        }
        let x = of(
            "positions",
            tape.add_repeated(&x, &tape.parameter(self.positions)),
        )?;
        let x = self.blocks.forward(tape, x, None, checkpointed)?;
        self.scores(tape, &x)
    }

    fn scores(&self, tape: &Tape, x: &Value) -> Result<Value> {
        // The norm works token by token, so where only the first is read only that one needs it.
        let class = self.norm.forward(tape, &tape.first_token(x)?)?;
        let tokens = x.dims()[1];
        match (self.reads, &self.teacher_head) {
            (VitReads::Class, _) | (VitReads::ClassAndTeacher, None) => {
                self.head.forward(tape, &class)
            }
            (VitReads::ClassAndMean, _) => {
                let before = tokens - self.shape.patches();
                let patches = self
                    .norm
                    .forward(tape, &tape.narrow(x, 1, before..tokens)?)?;
                let mean = tape.mean_tokens(&patches)?;
                self.head
                    .forward(tape, &tape.concat_along(&[&class, &mean], 1)?)
            }
            (VitReads::ClassAndTeacher, Some(head)) => {
                let teacher = tape.first_token(&tape.narrow(x, 1, 1..tokens)?)?;
                let teacher = self.norm.forward(tape, &teacher)?;
                let scores = tape.add(
                    &self.head.forward(tape, &class)?,
                    &head.forward(tape, &teacher)?,
                )?;
                tape.scale(&scores, 0.5)
            }
        }
    }

    /// Cuts images into rows of patch pixels: [samples, patches, 3 patch patch]. Data only: no gradient passes.
    fn patches(&self, images: &Value) -> Result<Value> {
        let (samples, channels, height, width) = images.tensor().dims4()?;
        let p = self.shape.patch;
        let cut = images
            .tensor()
            .reshape((samples, channels, height / p, p, width / p, p))?;
        let rows = cut.permute((0, 2, 4, 1, 3, 5))?.contiguous()?;
        Ok(Value::constant(rows.reshape((
            samples,
            self.shape.patches(),
            channels * p * p,
        ))?))
    }
}
