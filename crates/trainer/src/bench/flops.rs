//! Floating-point operations of a step's matrix products and convolutions, from the shapes alone: `2 m n k` for a product of
//! [m, k] and [k, n], twice that again in backward (one product for each operand's gradient), once for a product whose left
//! operand is data, and one more forward for a block that is run again, but for its last product where nobody reads that again. Attention's products count whole, causal or not;
//! what a blocked form computes again is not work that the step needs, so it does not count.

use super::workload::{IMAGE, IMAGE_CLASSES, Shape, TEXT_CLASSES, Workload};
use models::{ResNetShape, ResNetStem, saves_last_convolution};

/// Operations of one sample's forward pass.
struct Forward {
    /// The product that meets the data: its input needs no gradient.
    entry: f64,
    /// The part of it that can run again.
    stem: f64,
    /// By block: all of it, and the part that a second run does.
    blocks: Vec<(f64, f64)>,
    /// The head.
    head: f64,
}

impl Workload {
    /// Operations of a step of `samples` whose first `checkpointed` blocks run forward twice.
    pub fn flops(self, samples: usize, checkpointed: usize) -> f64 {
        let forward = self.forward();
        let one = 2.0 * forward.entry + 3.0 * forward.inner() + forward.again(checkpointed);
        samples as f64 * one
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
                    // One token more: the class token.
                    blocks: vec![block(patches + 1, s.width); s.depth],
                    head: product(1, s.width, IMAGE_CLASSES),
                }
            }
            Shape::ResNet(s) => residual(&s),
        }
    }
}

impl Forward {
    /// What runs a second time: blocks, and a stem of convolutions where all blocks do.
    fn again(&self, checkpointed: usize) -> f64 {
        let blocks: f64 = self.blocks.iter().take(checkpointed).map(|b| b.1).sum();
        match checkpointed >= self.blocks.len() {
            true => blocks + self.stem,
            false => blocks,
        }
    }

    fn inner(&self) -> f64 {
        self.blocks.iter().map(|b| b.0).sum::<f64>() + self.head
    }
}

/// [m, k] times [k, n].
fn product(m: usize, k: usize, n: usize) -> f64 {
    2.0 * m as f64 * k as f64 * n as f64
}

/// A transformer block: queries, keys and values, two products of attention, its projection, four widths up and down.
fn block(tokens: usize, width: usize) -> (f64, f64) {
    let down = product(tokens, width, 4 * width);
    let before = product(tokens, width, 3 * width)
        + 2.0 * product(tokens, width, tokens)
        + product(tokens, width, width)
        + product(tokens, width, 4 * width);
    (before + down, before)
}

/// A convolution to `side` x `side` outputs.
fn convolution(side: usize, kernel: usize, inputs: usize, outputs: usize) -> f64 {
    product(side * side, inputs * kernel * kernel, outputs)
}

fn residual(shape: &ResNetShape) -> Forward {
    let (kernel, stem_side, mut side) = match shape.stem {
        ResNetStem::Plain => (3, IMAGE, IMAGE),
        ResNetStem::Pooled => (7, IMAGE.div_ceil(2), IMAGE.div_ceil(2).div_ceil(2)),
    };
    let (mut blocks, mut inputs) = (Vec::new(), shape.channels);
    for &(outputs, stride) in &shape.blocks {
        side = side.div_ceil(stride);
        let last = convolution(side, 3, outputs, outputs);
        let mut before = convolution(side, 3, inputs, outputs);
        if stride != 1 || inputs != outputs {
            before += convolution(side, 1, inputs, outputs);
        }
        let again = before
            + if saves_last_convolution(outputs) {
                0.0
            } else {
                last
            };
        blocks.push((before + last, again));
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
        // torchvision's page of ResNet-18 says 1.81 GFLOPS, meaning multiply-adds, with 1,000 classes.
        check(Workload::ResNet18, 1.814e9);
        // timm's table says 1.26 G for ViT-Tiny/16, with 1,000 classes.
        check(Workload::VitTiny, 1.258e9);
        // 12 w² a block and token, beside attention's 2 T w and the head's w V.
        let tokens = 256.0 * (6.0 * (12.0 * 384.0 * 384.0 + 2.0 * 256.0 * 384.0) + 384.0 * 256.0);
        check(Workload::Gpt, tokens);
    }

    #[test]
    fn checkpointed_blocks_cost_one_more_forward_but_for_what_nobody_reads() {
        for workload in Workload::ALL {
            let (forward, all) = (workload.forward(), workload.blocks());
            assert_eq!(forward.blocks.len(), all);
            let more = workload.flops(2, all) - workload.flops(2, 0);
            let again = forward.blocks.iter().map(|b| b.1).sum::<f64>() + forward.stem;
            assert!((more / (2.0 * again) - 1.0).abs() < 1e-12);
            assert_eq!(workload.flops(6, 1), 3.0 * workload.flops(2, 1));
        }
        // Of a block without attention's squares, twelve parts, the map down is four.
        let (all, again) = Workload::Gpt125m.forward().blocks[0];
        let squares = 2.0 * product(512, 768, 512);
        assert!(((again - squares) / (all - squares) - 8.0 / 12.0).abs() < 1e-12);
    }
}
