//! The workloads: five networks by their sizes, and the loss of each.

use crate::batch::Batch;
use candle_core::{DType, Device};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Loss, Parameters, Tape, Value};
use trainer::estimate::AttentionSize;
use trainer::models::{
    Builder, Gpt, GptShape, ResNet, ResNetShape, TextEncoder, TextEncoderShape, Vit, VitShape,
};
use trainer::{Result, TrainedPiece};

/// A fixed network with made-up data, for comparison with other trainers on the same shapes.
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

/// Side of the images in pixels.
pub(crate) const IMAGE: usize = 224;
pub(crate) const IMAGE_CLASSES: usize = 101;
pub(crate) const TEXT_CLASSES: usize = 4;
/// Vocabulary of the text encoder.
pub(crate) const VOCABULARY: usize = 8192;

/// A workload's sizes.
pub(crate) enum Shape {
    Language(GptShape),
    Text(TextEncoderShape),
    Vit(VitShape),
    ResNet(ResNetShape),
}

impl Workload {
    /// All workloads, in the order of `ebb bench --workload all`.
    pub const ALL: [Workload; 5] = [
        Workload::Gpt,
        Workload::Gpt125m,
        Workload::ResNet18,
        Workload::VitTiny,
        Workload::BertMini,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Gpt => "gpt",
            Workload::Gpt125m => "gpt125m",
            Workload::ResNet18 => "resnet18",
            Workload::VitTiny => "vit_tiny",
            Workload::BertMini => "bert_mini",
        }
    }

    /// The workload with this name on the command line.
    pub fn from_name(name: &str) -> Option<Workload> {
        Workload::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
    }

    pub(crate) fn shape(self) -> Shape {
        match self {
            Workload::Gpt => Shape::Language(GptShape {
                tokens: 256,
                vocabulary: 256,
                width: 384,
                depth: 6,
                heads: 6,
            }),
            Workload::Gpt125m => Shape::Language(GptShape {
                tokens: 512,
                vocabulary: 16_384,
                width: 768,
                depth: 12,
                heads: 12,
            }),
            Workload::BertMini => Shape::Text(TextEncoderShape {
                tokens: 128,
                vocabulary: VOCABULARY,
                width: 256,
                depth: 4,
                heads: 4,
            }),
            Workload::VitTiny => Shape::Vit(VitShape::tiny(IMAGE)),
            Workload::ResNet18 => Shape::ResNet(ResNetShape::resnet18()),
        }
    }

    /// Tokens per sequence; 0 for images.
    pub fn tokens(self) -> usize {
        match self.shape() {
            Shape::Language(shape) => shape.tokens,
            Shape::Text(shape) => shape.tokens,
            Shape::Vit(_) | Shape::ResNet(_) => 0,
        }
    }

    /// Side of the images in pixels, or tokens per sequence.
    pub fn resolution(self) -> usize {
        match self.tokens() {
            0 => IMAGE,
            tokens => tokens,
        }
    }

    /// Width and heads of a transformer; `None` for a ResNet.
    pub fn attention(self) -> Option<AttentionSize> {
        let (width, heads) = match self.shape() {
            Shape::Language(shape) => (shape.width, shape.heads),
            Shape::Text(shape) => (shape.width, shape.heads),
            Shape::Vit(shape) => (shape.width, shape.heads),
            Shape::ResNet(_) => return None,
        };
        Some(AttentionSize { width, heads })
    }

    /// Bytes of one sample on the host.
    pub fn sample_bytes(self) -> u64 {
        let batch = self.zeros(1);
        (4 * (batch.ids.len() + batch.pixels.len() + batch.targets.len())) as u64
    }

    /// Number of blocks that can be checkpointed.
    pub fn blocks(self) -> usize {
        match self.shape() {
            Shape::Language(shape) => shape.depth,
            Shape::Text(shape) => shape.depth,
            Shape::Vit(shape) => shape.depth,
            Shape::ResNet(shape) => shape.blocks.len(),
        }
    }

    /// Builds the network on `device`, with initial weights of a fixed seed.
    pub(crate) fn build(self, dtype: DType, device: &Device) -> Result<(Model, Parameters)> {
        let mut parameters = Parameters::default();
        let model = self.build_with(&mut Builder::new(&mut parameters, 1, dtype, device))?;
        Ok((model, parameters))
    }

    /// Builds the network on the CPU with zeros for weights, which takes neither time nor memory.
    pub(crate) fn build_zeros(self, dtype: DType) -> Result<(Model, Parameters)> {
        let mut parameters = Parameters::default();
        let builder = Builder::new(&mut parameters, 1, dtype, &Device::Cpu);
        let model = self.build_with(&mut builder.of_zeros())?;
        Ok((model, parameters))
    }

    fn build_with(self, b: &mut Builder) -> Result<Model> {
        Ok(match self.shape() {
            Shape::Language(shape) => Model::Language(Gpt::build(b, shape)?),
            Shape::Text(shape) => Model::Text(TextEncoder::build(b, shape, TEXT_CLASSES)?),
            Shape::Vit(shape) => Model::Vit(Vit::build(b, shape, IMAGE_CLASSES)?),
            Shape::ResNet(shape) => Model::ResNet(ResNet::build(b, &shape, IMAGE_CLASSES)?),
        })
    }
}

/// A workload's network.
pub(crate) enum Model {
    Language(Gpt),
    Text(TextEncoder),
    Vit(Vit),
    ResNet(ResNet),
}

/// How a micro-batch is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardOptions {
    /// Number of checkpointed blocks.
    pub checkpointed: usize,
    /// Factor of the loss, so that gradients of a half precision do not underflow.
    pub loss_factor: f64,
}

/// Gradients of one micro-batch.
pub(crate) struct MicroBatch {
    pub sums: TrainedPiece,
    /// Most bytes that the tape saved for the backward pass at once, including those of a block
    /// that is recomputed.
    pub saved_bytes: u64,
}

impl Model {
    /// Runs forward and backward over `batch` and waits for the device.
    pub fn gradients(
        &self,
        parameters: &Parameters,
        batch: &Batch,
        device: &Device,
        options: ForwardOptions,
    ) -> Result<MicroBatch> {
        let tape = Tape::record(parameters, Cancel::default(), Kernels::Fused);
        self.gradients_on(tape, parameters, batch, device, options)
    }

    /// As [`Model::gradients`], on `tape`, which decides the kernels.
    pub fn gradients_on(
        &self,
        tape: Tape,
        parameters: &Parameters,
        batch: &Batch,
        device: &Device,
        options: ForwardOptions,
    ) -> Result<MicroBatch> {
        let loss = self.loss(&tape, batch, parameters, device, options.checkpointed)?;
        let keeping = tape.keeping().clone();
        let (per_row, root) = (loss.per_sample, loss.sum);
        let gradients = tape.backward(vec![(root, options.loss_factor)])?;
        let gradients = gradients
            .into_iter()
            .zip(parameters.iter())
            .map(|(gradient, parameter)| match gradient {
                Some(gradient) => Ok(gradient),
                // The micro-batch did not use this parameter.
                None => Ok(parameter.tensor.zeros_like()?),
            })
            .collect::<Result<_>>()?;
        device.synchronize()?;
        let sums = TrainedPiece {
            gradients,
            loss: to_f64(&per_row)?.iter().sum(),
            weight: batch.weight(),
            samples: batch.samples,
            not_finite: Vec::new(),
            measures: Default::default(),
        };
        Ok(MicroBatch {
            sums,
            saved_bytes: keeping.peak_bytes(),
        })
    }

    /// The summed loss of a batch.
    fn loss(
        &self,
        tape: &Tape,
        batch: &Batch,
        parameters: &Parameters,
        device: &Device,
        checkpointed: usize,
    ) -> Result<Loss> {
        let images = || -> Result<Value> {
            let shape = [batch.samples, 3, IMAGE, IMAGE];
            let images = tape::device::upload(&batch.pixels, &shape, device)?;
            Ok(Value::constant(
                images.to_dtype(parameters.at(0).tensor.dtype())?,
            ))
        };
        let scores = match self {
            Model::Language(model) => {
                let (ids, targets) = (&batch.ids, &batch.targets);
                return Ok(model.loss(tape, ids, targets, batch.samples, checkpointed)?);
            }
            Model::Text(model) => {
                let lengths = vec![batch.ids.len() / batch.samples; batch.samples];
                model.forward(tape, &batch.ids, &lengths, checkpointed)?
            }
            Model::Vit(model) => model.forward(tape, &images()?, checkpointed)?,
            Model::ResNet(model) => model.forward(tape, &images()?, checkpointed)?,
        };
        Ok(tape.cross_entropy(&scores, &batch.targets, 0.0)?)
    }
}
