//! Floating-point operations of a step's matrix products and convolutions, computed from the shapes
//! alone.
//!
//! A product of [m, k] and [k, n] takes `2 m n k` operations in the forward pass and twice that in
//! the backward pass, one product for each operand's gradient. A product whose left operand is data
//! takes `2 m n k` in the backward pass. A checkpointed block takes one more forward pass, without
//! its last product if nothing reads that result again. Attention's products count in full, causal
//! or not. Work that a blocked kernel repeats is not work that the step needs, so it does not
//! count.

use crate::workload::{ConvNextStage, IMAGE, IMAGE_CLASSES, Shape, TEXT_CLASSES, Workload};
use models::{ResNetShape, ResNetStem, saves_last_convolution};

/// Operations of one sample's forward pass.
struct Forward {
    /// The product whose input is data and needs no gradient.
    entry: f64,
    /// The part of `entry` that can be recomputed.
    stem: f64,
    blocks: Vec<BlockFlops>,
    head: f64,
}

/// Operations of one block.
#[derive(Clone, Copy)]
struct BlockFlops {
    forward: f64,
    /// The part that a checkpointed block repeats in the backward pass.
    recomputed: f64,
}

impl Workload {
    /// Operations of a step of `samples` whose first `checkpointed` blocks are recomputed.
    pub fn flops(self, samples: usize, checkpointed: usize) -> f64 {
        let forward = self.forward();
        let per_sample =
            2.0 * forward.entry + 3.0 * forward.inner() + forward.recomputed(checkpointed);
        samples as f64 * per_sample
    }

    fn forward(self) -> Forward {
        match self.shape() {
            Shape::Language(s) => Forward {
                entry: 0.0,
                stem: 0.0,
                blocks: vec![block(s.tokens, s.width); s.depth],
                head: product(s.tokens, s.width, s.vocabulary),
            },
            Shape::Text(s) => Forward {
                entry: 0.0,
                stem: 0.0,
                blocks: vec![block(s.tokens, s.width); s.depth],
                head: product(1, s.width, TEXT_CLASSES),
            },
            Shape::Vit(s) => {
                let patches = (s.image / s.patch).pow(2);
                Forward {
                    entry: product(patches, 3 * s.patch * s.patch, s.width),
                    stem: 0.0,
                    // One more for the class token.
                    blocks: vec![block(patches + 1, s.width); s.depth],
                    head: product(1, s.width, IMAGE_CLASSES),
                }
            }
            Shape::ResNet(s) => residual(&s, basic_block),
            Shape::Bottlenecks(s) => residual(&s, bottleneck),
            Shape::ConvNext(stages) => convnext(stages),
        }
    }
}

impl Forward {
    /// Operations of the second forward pass: the checkpointed blocks, and the stem if all blocks
    /// are checkpointed.
    fn recomputed(&self, checkpointed: usize) -> f64 {
        let blocks = self.blocks.iter().take(checkpointed);
        let blocks: f64 = blocks.map(|block| block.recomputed).sum();
        if checkpointed >= self.blocks.len() {
            blocks + self.stem
        } else {
            blocks
        }
    }

    /// Operations of the products that have a gradient for both operands.
    fn inner(&self) -> f64 {
        self.blocks.iter().map(|block| block.forward).sum::<f64>() + self.head
    }
}

/// A product of [m, k] and [k, n].
fn product(m: usize, k: usize, n: usize) -> f64 {
    2.0 * m as f64 * k as f64 * n as f64
}

/// A transformer block: queries, keys and values, attention's two products, its projection, and an
/// MLP of four widths.
fn block(tokens: usize, width: usize) -> BlockFlops {
    let down = product(tokens, width, 4 * width);
    let before = product(tokens, width, 3 * width)
        + 2.0 * product(tokens, width, tokens)
        + product(tokens, width, width)
        + product(tokens, width, 4 * width);
    BlockFlops {
        forward: before + down,
        recomputed: before,
    }
}

/// A convolution to `side` x `side` outputs.
fn convolution(side: usize, kernel: usize, inputs: usize, outputs: usize) -> f64 {
    product(side * side, inputs * kernel * kernel, outputs)
}

/// Sizes of a block of a residual network.
struct BlockSize {
    inputs: usize,
    outputs: usize,
    /// Side of its input.
    input_side: usize,
    /// Side of its output.
    side: usize,
}

impl BlockSize {
    /// The convolution of the shortcut, if the block changes the channels or the side.
    fn shortcut(&self) -> f64 {
        if self.inputs == self.outputs && self.input_side == self.side {
            0.0
        } else {
            convolution(self.side, 1, self.inputs, self.outputs)
        }
    }
}

/// Two convolutions of 3x3.
fn basic_block(size: &BlockSize) -> BlockFlops {
    let last = convolution(size.side, 3, size.outputs, size.outputs);
    let before = convolution(size.side, 3, size.inputs, size.outputs) + size.shortcut();
    let is_saved = saves_last_convolution(size.outputs);
    BlockFlops {
        forward: before + last,
        recomputed: before + if is_saved { 0.0 } else { last },
    }
}

/// 1x1 to a quarter of the channels, 3x3, which may be strided, and 1x1. The last convolution is
/// cheap enough to be recomputed.
fn bottleneck(size: &BlockSize) -> BlockFlops {
    let inner = size.outputs / 4;
    let forward = convolution(size.input_side, 1, size.inputs, inner)
        + convolution(size.side, 3, inner, inner)
        + convolution(size.side, 1, inner, size.outputs)
        + size.shortcut();
    BlockFlops {
        forward,
        recomputed: forward,
    }
}

/// A stem of patches of 4x4. Each stage but the first begins with a convolution that halves the
/// side. The last product of a block is recomputed, since the block multiplies it by a factor.
fn convnext(stages: &[ConvNextStage]) -> Forward {
    let (mut blocks, mut side, mut inputs) = (Vec::new(), IMAGE / 4, 3);
    let entry = convolution(side, 4, 3, stages.first().map_or(0, |stage| stage.width));
    for (i, stage) in stages.iter().enumerate() {
        let mut downsample = 0.0;
        if i > 0 {
            side /= 2;
            downsample = convolution(side, 2, inputs, stage.width);
        }
        let depthwise = convolution(side, 7, 1, stage.width);
        let mlp = 2.0 * convolution(side, 1, stage.width, 4 * stage.width);
        for block in 0..stage.depth {
            let forward = depthwise + mlp + if block == 0 { downsample } else { 0.0 };
            blocks.push(BlockFlops {
                forward,
                recomputed: forward,
            });
        }
        inputs = stage.width;
    }
    Forward {
        entry,
        stem: 0.0,
        blocks,
        head: product(1, inputs, IMAGE_CLASSES),
    }
}

fn residual(shape: &ResNetShape, block: fn(&BlockSize) -> BlockFlops) -> Forward {
    let (kernel, stem_side, mut side) = match shape.stem {
        ResNetStem::Plain => (3, IMAGE, IMAGE),
        ResNetStem::Pooled => (7, IMAGE.div_ceil(2), IMAGE.div_ceil(2).div_ceil(2)),
    };
    let (mut blocks, mut inputs) = (Vec::new(), shape.channels);
    for &(outputs, stride) in &shape.blocks {
        let input_side = side;
        side = side.div_ceil(stride);
        blocks.push(block(&BlockSize {
            inputs,
            outputs,
            input_side,
            side,
        }));
        inputs = outputs;
    }
    let stem = convolution(stem_side, kernel, 3, shape.channels);
    Forward {
        entry: stem,
        stem,
        blocks,
        head: product(1, inputs, IMAGE_CLASSES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(workload: Workload, published_multiply_adds: f64) {
        let forward = workload.forward();
        let found = (forward.entry + forward.inner()) / 2.0;
        let off = (found / published_multiply_adds - 1.0).abs();
        assert!(off < 0.01, "{}: {found:.4e}", workload.name());
    }

    #[test]
    fn forward_passes_count_as_published() {
        // torchvision's page of ResNet-18 gives 1.81 GFLOPS, meaning multiply-adds, with 1,000
        // classes.
        check(Workload::ResNet18, 1.814e9);
        // torchvision's pages of ResNet-50 and ConvNeXt Tiny give 4.09 and 4.46, with 1,000
        // classes.
        check(Workload::ResNet50, 4.089e9);
        check(Workload::ConvNextTiny, 4.456e9);
        // timm's table gives 1.26 G for ViT-Tiny/16, with 1,000 classes.
        check(Workload::VitTiny, 1.258e9);
        // 12 w² per block and token, plus attention's 2 T w and the head's w V.
        let tokens = 256.0 * (6.0 * (12.0 * 384.0 * 384.0 + 2.0 * 256.0 * 384.0) + 384.0 * 256.0);
        check(Workload::Gpt, tokens);
    }

    #[test]
    fn checkpointed_blocks_cost_one_more_forward_pass() {
        for workload in Workload::ALL {
            let (forward, all) = (workload.forward(), workload.blocks());
            assert_eq!(forward.blocks.len(), all);
            let more = workload.flops(2, all) - workload.flops(2, 0);
            let blocks = forward.blocks.iter().map(|block| block.recomputed);
            let recomputed = blocks.sum::<f64>() + forward.stem;
            assert!((more / (2.0 * recomputed) - 1.0).abs() < 1e-12);
            assert_eq!(workload.flops(6, 1), 3.0 * workload.flops(2, 1));
        }
        // Without attention's two products a block takes 12 w², of which the MLP's second product
        // takes 4 w².
        let block = Workload::Gpt125m.forward().blocks[0];
        let squares = 2.0 * product(512, 768, 512);
        let share = (block.recomputed - squares) / (block.forward - squares);
        assert!((share - 8.0 / 12.0).abs() < 1e-12);
    }
}
