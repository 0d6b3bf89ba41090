//! The workloads: a network, its parameters, and batches that it can learn from.

use crate::error::Result;
use crate::models::{
    Builder, Gpt, GptShape, ResNet, ResNetShape, TextEncoder, TextEncoderShape, Vit, VitShape,
};
use candle_core::{DType, Device, Tensor};
use tape::{Loss, Parameters, Stream, Tape, Value};

/// Workloads by the name the user writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Language model, 6 blocks of 384, 256 tokens, bytes.
    Gpt,
    /// Language model, 12 blocks of 768, 512 tokens, vocabulary 16,384.
    Gpt125m,
    /// ResNet-18 with GroupNorm at 224 px, 101 classes.
    ResNet18,
    /// ViT-Tiny/16 at 224 px, 101 classes.
    VitTiny,
    /// Text encoder, 4 blocks of 256, 128 tokens, 4 classes.
    BertMini,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 5] = [
        Workload::Gpt,
        Workload::Gpt125m,
        Workload::ResNet18,
        Workload::VitTiny,
        Workload::BertMini,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Gpt => "gpt",
            Workload::Gpt125m => "gpt125m",
            Workload::ResNet18 => "resnet18",
            Workload::VitTiny => "vit_tiny",
            Workload::BertMini => "bert_mini",
        }
    }

    /// The workload of a name.
    pub fn named(name: &str) -> Option<Workload> {
        Workload::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
    }

    /// Tokens a sequence; 0 for images.
    pub fn tokens(self) -> usize {
        match self {
            Workload::Gpt => 256,
            Workload::Gpt125m => 512,
            Workload::BertMini => 128,
            Workload::ResNet18 | Workload::VitTiny => 0,
        }
    }

    /// Blocks that can be checkpointed.
    pub fn blocks(self) -> usize {
        match self {
            Workload::Gpt => 6,
            Workload::Gpt125m | Workload::VitTiny => 12,
            Workload::ResNet18 => 8,
            Workload::BertMini => 4,
        }
    }

    /// Builds the network.
    pub(super) fn build(self, device: &Device) -> Result<(Model, Parameters)> {
        let mut parameters = Parameters::default();
        let b = &mut Builder::new(&mut parameters, 1, DType::F32, device);
        let model = match self {
            Workload::Gpt => Model::Language(Gpt::build(
                b,
                GptShape {
                    tokens: 256,
                    vocabulary: 256,
                    width: 384,
                    depth: 6,
                    heads: 6,
                },
            )?),
            Workload::Gpt125m => Model::Language(Gpt::build(
                b,
                GptShape {
                    tokens: 512,
                    vocabulary: 16_384,
                    width: 768,
                    depth: 12,
                    heads: 12,
                },
            )?),
            Workload::BertMini => {
                let shape = TextEncoderShape {
                    tokens: 128,
                    vocabulary: VOCABULARY,
                    width: 256,
                    depth: 4,
                    heads: 4,
                };
                Model::Text(TextEncoder::build(b, shape, TEXT_CLASSES)?)
            }
            Workload::VitTiny => Model::Vit(Vit::build(b, VitShape::tiny(IMAGE), IMAGE_CLASSES)?),
            Workload::ResNet18 => {
                Model::ResNet(ResNet::build(b, &ResNetShape::resnet18(), IMAGE_CLASSES)?)
            }
        };
        Ok((model, parameters))
    }

    /// A made-up, learnable batch, the same on every machine.
    pub(super) fn batch(self, samples: usize) -> Batch {
        let stream = Stream::new(2).site(self.name());
        match self {
            Workload::Gpt => sequences(stream, samples, self.tokens(), 256),
            Workload::Gpt125m => sequences(stream, samples, self.tokens(), 16_384),
            Workload::BertMini => texts(stream, samples, self.tokens()),
            Workload::ResNet18 | Workload::VitTiny => images(stream, samples),
        }
    }
}

/// Side of the images, and classes of images and texts.
const IMAGE: usize = 224;
const IMAGE_CLASSES: usize = 101;
const TEXT_CLASSES: usize = 4;
/// Different tokens of the text encoder.
const VOCABULARY: usize = 8192;

/// A workload's network.
pub(super) enum Model {
    Language(Gpt),
    Text(TextEncoder),
    Vit(Vit),
    ResNet(ResNet),
}

/// Samples of a workload on the host.
pub(super) struct Batch {
    /// Tokens, or nothing.
    ids: Vec<u32>,
    /// Pixels, or nothing.
    pixels: Vec<f32>,
    /// Targets: one a token or one a sample.
    targets: Vec<u32>,
    samples: usize,
}

impl Batch {
    /// Samples `from..to`.
    pub fn part(&self, from: usize, to: usize) -> Batch {
        fn cut<T: Clone>(all: &[T], samples: usize, from: usize, to: usize) -> Vec<T> {
            let one = all.len() / samples;
            all[from * one..to * one].to_vec()
        }
        Batch {
            ids: cut(&self.ids, self.samples, from, to),
            pixels: cut(&self.pixels, self.samples, from, to),
            targets: cut(&self.targets, self.samples, from, to),
            samples: to - from,
        }
    }

    /// What the summed loss is divided by: targets.
    pub fn weight(&self) -> f64 {
        self.targets.len() as f64
    }
}

impl Model {
    /// The summed loss of a batch.
    pub fn loss(
        &self,
        tape: &Tape,
        batch: &Batch,
        device: &Device,
        checkpointed: usize,
    ) -> Result<Loss> {
        let images = || -> Result<Value> {
            Ok(Value::constant(Tensor::from_slice(
                &batch.pixels,
                (batch.samples, 3, IMAGE, IMAGE),
                device,
            )?))
        };
        let scores = match self {
            Model::Language(model) => {
                return Ok(model.loss(tape, &batch.ids, &batch.targets, checkpointed)?);
            }
            Model::Text(model) => model.forward(tape, &batch.ids, checkpointed)?,
            Model::Vit(model) => model.forward(tape, &images()?, checkpointed)?,
            Model::ResNet(model) => model.forward(tape, &images()?, checkpointed)?,
        };
        Ok(tape.cross_entropy(&scores, &batch.targets, 0.0)?)
    }
}

/// Each token follows from the one before it, one in eight at random.
fn sequences(stream: Stream, samples: usize, tokens: usize, vocabulary: u32) -> Batch {
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    for sample in 0..samples as u64 {
        let at = |i: u64| stream.at(sample).at(i);
        let mut token = (at(0).uniform(0) * f64::from(vocabulary)) as u32;
        for i in 1..=tokens as u64 {
            ids.push(token);
            token = if at(i).uniform(1) < 0.125 {
                (at(i).uniform(0) * f64::from(vocabulary)) as u32
            } else {
                (token * 5 + 17) % vocabulary
            };
            targets.push(token);
        }
    }
    Batch {
        ids,
        pixels: Vec::new(),
        targets,
        samples,
    }
}

/// The class decides which quarter of the vocabulary is favoured.
fn texts(stream: Stream, samples: usize, tokens: usize) -> Batch {
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    let classes = TEXT_CLASSES as u32;
    for sample in 0..samples as u64 {
        let own = stream.at(sample);
        let class = (own.uniform(0) * f64::from(classes)) as u32;
        for i in 0..tokens as u64 {
            let token = (own.at(i).uniform(0) * VOCABULARY as f64) as u32;
            let favoured = own.at(i).uniform(1) < 0.3;
            ids.push(if favoured {
                token / classes + class * (VOCABULARY as u32 / classes)
            } else {
                token
            });
        }
        targets.push(class);
    }
    Batch {
        ids,
        pixels: Vec::new(),
        targets,
        samples,
    }
}

/// Noise whose red channel is shifted by the class.
fn images(stream: Stream, samples: usize) -> Batch {
    let (mut pixels, mut targets) = (Vec::new(), Vec::new());
    for sample in 0..samples as u64 {
        let own = stream.at(sample);
        let class = (own.uniform(0) * IMAGE_CLASSES as f64) as u32;
        let shift = f64::from(class) / IMAGE_CLASSES as f64 * 4.0 - 2.0;
        let plane = (IMAGE * IMAGE) as u64;
        pixels.extend(
            (0..3 * plane)
                .map(|i| (own.at(1).normal(i) + if i < plane { shift } else { 0.0 }) as f32),
        );
        targets.push(class);
    }
    Batch {
        ids: Vec::new(),
        pixels,
        targets,
        samples,
    }
}
