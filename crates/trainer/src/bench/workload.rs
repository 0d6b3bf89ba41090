//! The workloads: a network by its sizes, and its loss.

use super::batch::Batch;
use crate::error::Result;
use crate::models::{
    Builder, Gpt, GptShape, ResNet, ResNetShape, TextEncoder, TextEncoderShape, Vit, VitShape,
};
use crate::task::TrainedPiece;
use candle_core::{DType, Device};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Loss, Parameters, Tape, Value};

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

/// Side of the images, and classes of images and texts.
pub(super) const IMAGE: usize = 224;
pub(super) const IMAGE_CLASSES: usize = 101;
pub(super) const TEXT_CLASSES: usize = 4;
/// Different tokens of the text encoder.
pub(super) const VOCABULARY: usize = 8192;

/// A workload's sizes.
pub(super) enum Shape {
    Language(GptShape),
    Text(TextEncoderShape),
    Vit(VitShape),
    ResNet(ResNetShape),
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

    pub(super) fn shape(self) -> Shape {
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

    /// Tokens a sequence; 0 for images.
    pub fn tokens(self) -> usize {
        match self.shape() {
            Shape::Language(shape) => shape.tokens,
            Shape::Text(shape) => shape.tokens,
            Shape::Vit(_) | Shape::ResNet(_) => 0,
        }
    }

    /// Side of the images, or tokens of a sequence.
    pub fn resolution(self) -> usize {
        match self.tokens() {
            0 => IMAGE,
            tokens => tokens,
        }
    }

    /// Width and heads of a transformer.
    pub fn heads(self) -> Option<(usize, usize)> {
        match self.shape() {
            Shape::Language(shape) => Some((shape.width, shape.heads)),
            Shape::Text(shape) => Some((shape.width, shape.heads)),
            Shape::Vit(shape) => Some((shape.width, shape.heads)),
            Shape::ResNet(_) => None,
        }
    }

    /// Bytes of one sample on the host.
    pub fn sample_bytes(self) -> u64 {
        let batch = self.blank(1);
        (4 * (batch.ids.len() + batch.pixels.len() + batch.targets.len())) as u64
    }

    /// Blocks that can be checkpointed.
    pub fn blocks(self) -> usize {
        match self.shape() {
            Shape::Language(shape) => shape.depth,
            Shape::Text(shape) => shape.depth,
            Shape::Vit(shape) => shape.depth,
            Shape::ResNet(shape) => shape.blocks.len(),
        }
    }

    /// Builds the network.
    pub(crate) fn build(self, dtype: DType, device: &Device) -> Result<(Model, Parameters)> {
        let mut parameters = Parameters::default();
        let model = self.built(&mut Builder::new(&mut parameters, 1, dtype, device))?;
        Ok((model, parameters))
    }

    /// The same network with zeros for parameters, on the CPU: its shapes, in no time and memory.
    pub(crate) fn of_zeros(self, dtype: DType) -> Result<(Model, Parameters)> {
        let mut parameters = Parameters::default();
        let builder = Builder::new(&mut parameters, 1, dtype, &Device::Cpu);
        let model = self.built(&mut builder.of_zeros())?;
        Ok((model, parameters))
    }

    fn built(self, b: &mut Builder) -> Result<Model> {
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

impl Model {
    /// Forward and backward over one piece, its loss times `loss_factor`: its sums, and the most bytes that the tape kept, what a checkpointed block keeps
    /// while it runs again included. Waits for the device.
    pub fn piece(
        &self,
        parameters: &Parameters,
        part: &Batch,
        device: &Device,
        how: (usize, f64),
    ) -> Result<(TrainedPiece, u64)> {
        self.piece_by(Kernels::Fused, parameters, part, device, how)
    }

    /// [`Model::piece`] by these forms of the operations.
    pub fn piece_by(
        &self,
        kernels: Kernels,
        parameters: &Parameters,
        part: &Batch,
        device: &Device,
        (checkpointed, loss_factor): (usize, f64),
    ) -> Result<(TrainedPiece, u64)> {
        let tape = Tape::record(parameters, Cancel::default(), kernels);
        self.piece_on(tape, parameters, part, device, (checkpointed, loss_factor))
    }

    /// [`Model::piece`] on this tape, which records.
    pub fn piece_on(
        &self,
        tape: Tape,
        parameters: &Parameters,
        part: &Batch,
        device: &Device,
        (checkpointed, loss_factor): (usize, f64),
    ) -> Result<(TrainedPiece, u64)> {
        let loss = self.loss(&tape, part, parameters, device, checkpointed)?;
        let keeping = tape.saved_tensors().clone();
        let (per_row, root) = (loss.per_sample, loss.sum);
        let gradients = tape.backward(vec![(root, loss_factor)])?.into_iter();
        let gradients = gradients
            .zip(parameters.iter())
            .map(|(gradient, parameter)| match gradient {
                Some(gradient) => Ok(gradient),
                // A parameter that took no part in this piece.
                None => Ok(parameter.tensor.zeros_like()?),
            })
            .collect::<Result<_>>()?;
        device.synchronize()?;
        let piece = TrainedPiece {
            gradients,
            loss: to_f64(&per_row)?.iter().sum(),
            weight: part.weight(),
            samples: part.samples,
            not_finite: Vec::new(),
            measures: Default::default(),
        };
        Ok((piece, keeping.peak_bytes()))
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
