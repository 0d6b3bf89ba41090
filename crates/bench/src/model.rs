//! A workload's network: how it is built, its loss and its gradients.

use crate::synthetic_batch::Batch;
use crate::workload::{IMAGE, IMAGE_CLASSES, Shape, TEXT_CLASSES, Workload};
use candle_core::{DType, Device};
use models::{Gpt, ImageModel, ModelId, Network, ParameterBuilder, ResNet, TextEncoder, Vit};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Loss, Parameters, Tape, Value};
use trainer::Result;
use trainer::internals::MicroBatchResult;

impl Workload {
    /// Builds the network on `device`, with initial weights of a fixed seed.
    pub(crate) fn build(self, dtype: DType, device: &Device) -> Result<(Model, Parameters)> {
        let mut parameters = Parameters::default();
        let model = self.build_with(&mut ParameterBuilder::new(
            &mut parameters,
            1,
            dtype,
            device,
        ))?;
        Ok((model, parameters))
    }

    /// Builds the network on the CPU with zeros for weights, which takes neither time nor memory.
    pub(crate) fn build_zeros(self, dtype: DType) -> Result<(Model, Parameters)> {
        let mut parameters = Parameters::default();
        let builder = ParameterBuilder::new(&mut parameters, 1, dtype, &Device::Cpu);
        let model = self.build_with(&mut builder.with_zeros())?;
        Ok((model, parameters))
    }

    fn build_with(self, b: &mut ParameterBuilder) -> Result<Model> {
        Ok(match self.shape() {
            Shape::Language(shape) => Model::Language(Gpt::build(b, shape)?),
            Shape::Text(shape) => Model::Text(TextEncoder::build(b, shape, TEXT_CLASSES)?),
            Shape::Vit(shape) => Model::Vit(Vit::build(b, shape, IMAGE_CLASSES)?),
            Shape::ResNet(shape) => Model::ResNet(ResNet::build(b, &shape, IMAGE_CLASSES)?),
            Shape::Bottlenecks(_) => Model::from_catalog(b, ImageModel::ResNet50)?,
            Shape::ConvNext(_) => Model::from_catalog(b, ImageModel::ConvNextTiny)?,
        })
    }
}

/// A workload's network.
pub(crate) enum Model {
    Language(Gpt),
    Text(TextEncoder),
    Vit(Vit),
    ResNet(ResNet),
    Catalog(Box<Network>),
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
    pub sums: MicroBatchResult,
    /// Most bytes that the tape saved for the backward pass at once, including those of a block
    /// that is recomputed.
    pub saved_bytes: u64,
}

impl Model {
    /// Builds an image network of the catalog.
    fn from_catalog(b: &mut ParameterBuilder, model: ImageModel) -> Result<Self> {
        let network = Network::build_with(b, ModelId::Image(model), IMAGE, IMAGE_CLASSES)?;
        Ok(Model::Catalog(Box::new(network)))
    }

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
        let keeping = tape.saved_tensors().clone();
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
        let sums = MicroBatchResult {
            gradients,
            // As in a run, reading the losses is the only wait for the device.
            loss: to_f64(&per_row)?.iter().sum(),
            weight: batch.weight(),
            samples: batch.samples,
            not_finite: Vec::new(),
            metrics: Default::default(),
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
            Model::Catalog(network) => network.forward(tape, &images()?, checkpointed)?,
        };
        Ok(tape.cross_entropy(&scores, &batch.targets, 0.0)?)
    }
}
