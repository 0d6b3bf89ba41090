//! Every model in sizes that a test can train, with samples that it can learn from and
//! micro-batches of them.

#![allow(dead_code)]

use candle_core::{DType, Device, Tensor};
use models::{
    Gpt, ParameterBuilder, ResNet, ResNetShape, ResNetStem, SequenceShape, TextEncoder, Vit,
    VitShape,
};
use std::ops::Range;
use tape::inplace::to_f64;
use tape::{Activation, Cancel, Kernels, Parameters, Rng, Tape, Value};
use trainer::internals::MicroBatchResult;

/// A small model of each architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallModel {
    ConvNet,
    ResNet18,
    VitMicro,
    VitTiny,
    Gpt,
    TextEncoder,
}

/// Classes of images and texts.
const CLASSES: u32 = 5;
/// Tokens a sequence; odd, so that no kernel's chunk divides it.
const TOKENS: usize = 19;
const VOCABULARY: u32 = 37;

enum Network {
    ResNet(ResNet),
    Vit(Vit),
    Gpt(Gpt),
    TextEncoder(TextEncoder),
}

/// A model with its parameters.
pub struct Model {
    network: Network,
    side: usize,
    pub parameters: Parameters,
}

/// Samples in one buffer per field.
pub struct Samples {
    pixels: Vec<f64>,
    ids: Vec<u32>,
    lengths: Vec<usize>,
    targets: Vec<u32>,
    count: usize,
}

impl SmallModel {
    pub const ALL: [SmallModel; 6] = [
        SmallModel::ConvNet,
        SmallModel::ResNet18,
        SmallModel::VitMicro,
        SmallModel::VitTiny,
        SmallModel::Gpt,
        SmallModel::TextEncoder,
    ];

    /// Blocks that can be checkpointed.
    pub fn blocks(self) -> usize {
        match self {
            SmallModel::ConvNet | SmallModel::ResNet18 => 4,
            SmallModel::VitMicro
            | SmallModel::VitTiny
            | SmallModel::Gpt
            | SmallModel::TextEncoder => 2,
        }
    }

    // tidy: table
    pub fn build(self, dtype: DType) -> Model {
        let mut parameters = Parameters::default();
        let b = &mut ParameterBuilder::new(&mut parameters, 7, dtype, &Device::Cpu);
        let classes = CLASSES as usize;
        let (network, side) = match self {
            SmallModel::ConvNet => {
                let shape = ResNetShape {
                    channels: 8,
                    blocks: vec![(8, 2), (8, 1), (16, 2), (16, 1)],
                    groups: 4,
                    ..ResNetShape::convnet()
                };
                (
                    Network::ResNet(ResNet::build(b, &shape, classes).unwrap()),
                    14,
                )
            }
            SmallModel::ResNet18 => {
                let shape = ResNetShape {
                    stem: ResNetStem::Pooled,
                    channels: 8,
                    blocks: vec![(8, 1), (8, 1), (16, 2), (16, 1)],
                    groups: 4,
                    activation: Activation::Relu,
                };
                (
                    Network::ResNet(ResNet::build(b, &shape, classes).unwrap()),
                    30,
                )
            }
            SmallModel::VitMicro => {
                let shape = VitShape {
                    width: 32,
                    depth: 2,
                    ..VitShape::micro(24)
                };
                (Network::Vit(Vit::build(b, shape, classes).unwrap()), 24)
            }
            SmallModel::VitTiny => {
                let shape = VitShape {
                    width: 24,
                    depth: 2,
                    ..VitShape::tiny(32)
                };
                (Network::Vit(Vit::build(b, shape, classes).unwrap()), 32)
            }
            SmallModel::Gpt => {
                let shape = SequenceShape {
                    tokens: TOKENS,
                    vocabulary: VOCABULARY as usize,
                    width: 24,
                    depth: 2,
                    heads: 3,
                };
                (Network::Gpt(Gpt::build(b, shape).unwrap()), 0)
            }
            SmallModel::TextEncoder => {
                let shape = SequenceShape {
                    tokens: TOKENS,
                    vocabulary: VOCABULARY as usize,
                    width: 24,
                    depth: 2,
                    heads: 4,
                };
                (
                    Network::TextEncoder(TextEncoder::build(b, shape, classes).unwrap()),
                    0,
                )
            }
        };
        Model {
            network,
            side,
            parameters,
        }
    }
}

impl Model {
    /// Images with a shade of their class; sequences in which a token follows from the one before
    /// it.
    pub fn samples(&self, count: usize, seed: u64) -> Samples {
        let mut samples = Samples {
            pixels: Vec::new(),
            ids: Vec::new(),
            lengths: Vec::new(),
            targets: Vec::new(),
            count,
        };
        for sample in 0..count as u64 {
            let own = Rng::new(seed).at(sample);
            let class = (own.uniform(0) * f64::from(CLASSES)) as u32;
            match self.network {
                Network::ResNet(_) | Network::Vit(_) => {
                    let pixels = (3 * self.side * self.side) as u64;
                    let shade = f64::from(class) / 2.0 - 1.0;
                    samples
                        .pixels
                        .extend((0..pixels).map(|i| own.at(1).normal(i) + shade));
                    samples.targets.push(class);
                }
                Network::Gpt(_) | Network::TextEncoder(_) => {
                    let mut token = (own.uniform(1) * f64::from(VOCABULARY)) as u32;
                    for i in 0..TOKENS as u64 {
                        samples.ids.push(token);
                        let random = own.at(2).uniform(2 * i) < 0.2;
                        token = if random {
                            (own.at(2).uniform(2 * i + 1) * f64::from(VOCABULARY)) as u32
                        } else {
                            (token * 5 + class) % VOCABULARY
                        };
                        if matches!(self.network, Network::Gpt(_)) {
                            samples.targets.push(token);
                        }
                    }
                    if matches!(self.network, Network::TextEncoder(_)) {
                        samples.targets.push(class);
                        // Texts of many lengths, the shortest of one token.
                        let length = own.uniform(3) * TOKENS as f64;
                        samples.lengths.push(1 + length as usize);
                    }
                }
            }
        }
        samples
    }

    /// Forward and backward over some of the samples.
    pub fn micro_batch(
        &self,
        all: &Samples,
        range: Range<usize>,
        dtype: DType,
        checkpointed: usize,
    ) -> MicroBatchResult {
        fn cut<T: Clone>(all: &[T], count: usize, range: &Range<usize>) -> Vec<T> {
            let one = all.len() / count;
            all[range.start * one..range.end * one].to_vec()
        }
        let (ids, targets) = (
            cut(&all.ids, all.count, &range),
            cut(&all.targets, all.count, &range),
        );
        let images = || {
            let pixels = cut(&all.pixels, all.count, &range);
            let images =
                Tensor::from_vec(pixels, (range.len(), 3, self.side, self.side), &Device::Cpu);
            Value::constant(images.unwrap().to_dtype(dtype).unwrap())
        };
        let tape = Tape::record(&self.parameters, Cancel::default(), Kernels::Fused);
        let scores = match &self.network {
            Network::ResNet(network) => network.forward(&tape, &images(), checkpointed),
            Network::Vit(network) => network.forward(&tape, &images(), checkpointed),
            Network::TextEncoder(network) => {
                network.forward(&tape, &ids, &all.lengths[range.clone()], checkpointed)
            }
            Network::Gpt(network) => {
                let loss = network
                    .loss(&tape, &ids, &targets, range.len(), checkpointed)
                    .unwrap();
                return summed(tape, loss, targets.len(), range.len());
            }
        };
        let loss = tape.cross_entropy(&scores.unwrap(), &targets, 0.0).unwrap();
        summed(tape, loss, targets.len(), range.len())
    }
}

fn summed(tape: Tape, loss: tape::Loss, weight: usize, samples: usize) -> MicroBatchResult {
    let (per_row, root) = (loss.per_sample, loss.sum);
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    MicroBatchResult {
        gradients: gradients
            .into_iter()
            .map(|g| g.expect("every parameter takes part"))
            .collect(),
        loss: to_f64(&per_row).unwrap().iter().sum(),
        weight: weight as f64,
        samples,
        not_finite: Vec::new(),
        metrics: Default::default(),
    }
}
