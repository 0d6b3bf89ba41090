//! A piece at work, whatever the task: forward and backward over its samples under one set of rules, and the sums that come of it.

use super::{
    CompressionTask, EvaluatedPiece, Heads, ImageTask, LanguageTask, Pixels, Prediction, Sample,
    Sums, Text, TextTask,
};
use crate::error::{Result, TrainError};
use crate::models::{Compressor, Network};
use crate::plan::Compression;
use candle_core::{DType, Device, Tensor};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Loss, Parameters, Tape, Value};

/// What a piece of training gave: sums, not means. It owns its gradients; nothing else has been touched.
pub struct TrainedPiece {
    /// Gradient of the summed loss times the task's loss factor, by parameter; in a half type where it was computed in one.
    pub gradients: Vec<Tensor>,
    /// Summed loss.
    pub loss: f64,
    /// What the sum is to be divided by, together with the other pieces'.
    pub weight: f64,
    /// Samples.
    pub samples: usize,
    /// Samples whose own loss is not finite, by their place in the dataset.
    pub not_finite: Vec<u32>,
    /// What else was measured.
    pub measures: Sums,
}

/// Everything a piece needs beside its samples.
#[derive(Clone)]
pub struct Work<'a> {
    /// Network.
    pub network: &'a Network,
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// Side of images in pixels; most tokens of texts.
    pub image_size: usize,
    /// How the pixels of images are normalised.
    pub pixels: Pixels,
    /// Label smoothing of the training loss.
    pub label_smoothing: f64,
    /// How much each class counts; all alike where there are none.
    pub class_weights: Option<&'a [f64]>,
    /// What a token compression is asked to do.
    pub compression: Option<&'a Compression>,
    /// What a network for photographs gives.
    pub heads: Heads,
    /// Blocks that keep their input only and run again in backward.
    pub checkpointed: usize,
    /// Element type of the computation.
    pub dtype: DType,
    /// Factor on the loss before backward: 1 but in f16, where the gradients carry it.
    pub loss_factor: f64,
    /// Device.
    pub device: &'a Device,
    /// Ends the piece at the next operation.
    pub cancel: Cancel,
    /// Which form of the operations runs.
    pub kernels: Kernels,
    /// Most bytes that a piece may keep for its backward pass; beyond them it fails as on a device without memory.
    pub limit_bytes: Option<u64>,
}

impl<'a> Work<'a> {
    /// Forward and backward over one piece. Waits for the device: an earlier GPU error shows here and nowhere else.
    pub fn gradients(&self, samples: &[Sample]) -> Result<TrainedPiece> {
        match self.network {
            Network::TextEncoder(network) => {
                TextTask::new(self, network).gradients(&Sample::texts(samples))
            }
            Network::Gpt(network) => {
                LanguageTask::new(self, network).gradients(&Sample::windows(samples))
            }
            Network::Compressor(network) => {
                let sequences = Sample::sequences(samples);
                self.of_compression(network)?.gradients(&sequences)
            }
            Network::ResNet(_) | Network::Vit(_) => {
                self.of_images().gradients(&Sample::photographs(samples))
            }
        }
    }

    /// Forward over one piece of held-out samples. Metrics become plain numbers at once.
    pub fn evaluate(&self, samples: &[Sample]) -> Result<EvaluatedPiece> {
        match self.network {
            Network::TextEncoder(network) => {
                TextTask::new(self, network).evaluate(&Sample::texts(samples))
            }
            Network::Gpt(network) => {
                LanguageTask::new(self, network).evaluate(&Sample::windows(samples))
            }
            Network::Compressor(network) => {
                let sequences = Sample::sequences(samples);
                self.of_compression(network)?.evaluate(&sequences)
            }
            Network::ResNet(_) | Network::Vit(_) => {
                self.of_images().evaluate(&Sample::photographs(samples))
            }
        }
    }

    /// What each text is; nothing for a network that tells no texts apart.
    pub fn classify(&self, texts: &[&Text]) -> Result<Vec<Prediction>> {
        match self.network {
            Network::TextEncoder(network) => TextTask::new(self, network).predict(texts),
            Network::ResNet(_) | Network::Vit(_) | Network::Gpt(_) | Network::Compressor(_) => {
                Ok(Vec::new())
            }
        }
    }

    /// The same piece of a token compression.
    pub fn of_compression(&'a self, network: &'a Compressor) -> Result<CompressionTask<'a>> {
        let rule = self.compression.ok_or_else(|| TrainError::NotTrainable {
            sentence: "nothing says how many tokens are kept".to_owned(),
        })?;
        Ok(CompressionTask::new(self, network, rule))
    }

    /// The same for photographs.
    pub fn of_images(&self) -> ImageTask<'a> {
        ImageTask {
            network: self.network,
            parameters: self.parameters,
            image_size: self.image_size,
            pixels: self.pixels,
            label_smoothing: self.label_smoothing,
            heads: self.heads,
            checkpointed: self.checkpointed,
            dtype: self.dtype,
            loss_factor: self.loss_factor,
            device: self.device,
            cancel: self.cancel.clone(),
            kernels: self.kernels,
            limit_bytes: self.limit_bytes,
        }
    }

    /// A tape for one piece of training.
    pub(super) fn recording(&self) -> Tape<'a> {
        let (cancel, limit_bytes) = (self.cancel.clone(), self.limit_bytes);
        Tape::record_with_limit(self.parameters, cancel, self.kernels, limit_bytes)
    }

    /// A tape for one piece of evaluation.
    pub fn forward_only(&self) -> Tape<'a> {
        Tape::forward_only(self.parameters, self.cancel.clone(), self.kernels)
    }

    /// Backward of one summed loss: a gradient for every parameter, and the loss of each row. Waits for the device.
    pub(super) fn backward(&self, tape: Tape, loss: Loss) -> Result<(Vec<Tensor>, Vec<f64>)> {
        let (per_row, root) = (loss.per_sample, loss.sum);
        let gradients = self.walk_back(tape, vec![(root, 1.0)])?;
        Ok((gradients, to_f64(&per_row)?))
    }

    /// One walk back from all losses together, each with its factor: a gradient for every parameter. Waits for the device.
    pub(super) fn walk_back(&self, tape: Tape, roots: Vec<(Value, f64)>) -> Result<Vec<Tensor>> {
        let factored = roots
            .into_iter()
            .map(|(root, factor)| (root, factor * self.loss_factor));
        let gradients = tape.backward(factored.collect())?;
        let gradients = gradients.into_iter().zip(self.parameters.iter());
        let gradients = gradients.map(|(gradient, parameter)| match gradient {
            Some(gradient) => Ok(gradient),
            // A parameter that took no part in this piece.
            None => Ok(parameter.tensor.zeros_like()?),
        });
        let gradients = gradients.collect::<Result<Vec<_>>>()?;
        self.device.synchronize()?;
        Ok(gradients)
    }
}
