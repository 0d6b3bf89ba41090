//! What a micro-batch is computed with: weights, device, precision and the options of its task.

use super::{EvaluatedMicroBatch, Heads, MetricSums, PixelNormalization, Sample, Task};
use crate::error::{Result, TrainError};
use crate::plan::Compression;
use candle_core::{DType, Device, Tensor};
use models::Network;
use tape::device::synchronize;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, KinkUse, Loss, Parameters, SampleNoise, Tape, Value};

/// The result of one training micro-batch: sums, not means. It owns its gradients; nothing else has
/// changed.
pub struct MicroBatchResult {
    /// Gradient of the summed loss times the loss factor, one per parameter. In half precision, of
    /// that type.
    pub gradients: Vec<Tensor>,
    /// Summed loss.
    pub loss: f64,
    /// What the summed loss of the whole effective batch is divided by: samples, tokens or class
    /// weights.
    pub weight: f64,
    /// Number of samples.
    pub samples: usize,
    /// Dataset indices of samples whose own loss is not finite.
    pub not_finite: Vec<u32>,
    /// Sums of the task's further metrics.
    pub metrics: MetricSums,
}

/// Everything that computing a micro-batch needs, except its samples.
#[derive(Clone)]
pub struct ForwardContext<'a> {
    /// The network.
    pub network: &'a Network,
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// Image size in pixels, or the most tokens of a text.
    pub input_size: usize,
    /// How pixels are normalized.
    pub pixels: PixelNormalization,
    /// Label smoothing of the training loss.
    pub label_smoothing: f64,
    /// Weight of each class in the loss; all equal if absent.
    pub class_weights: Option<&'a [f64]>,
    /// Beta of direct preference optimization, if the samples are preferences.
    pub preference_beta: Option<f64>,
    /// The options of token compression, for that task alone.
    pub compression: Option<&'a Compression>,
    /// The outputs of an image network.
    pub heads: Heads,
    /// Number of checkpointed blocks; their activations are recomputed in the backward pass.
    pub checkpointed: usize,
    /// Element type of the computation.
    pub dtype: DType,
    /// Factor on the loss before the backward pass; 1 except in f16.
    pub loss_factor: f64,
    /// The device.
    pub device: &'a Device,
    /// Cancels the micro-batch at the next operation.
    pub cancel: Cancel,
    /// Seed of the run.
    pub seed: u64,
    /// The optimizer step that a training micro-batch belongs to. With the seed and the samples it
    /// determines the random numbers of the network.
    pub step: u64,
    /// Which implementation of the operations runs.
    pub kernels: Kernels,
    /// Most bytes that may be saved for the backward pass. Beyond them the micro-batch fails as if
    /// the device had no memory.
    pub limit_bytes: Option<u64>,
    /// Compares two runs on the same sides of their kinks; never in training.
    pub kinks: Option<KinkUse<'a>>,
    /// Whether forward passes without a backward pass leave the adapters out.
    pub without_adapters: bool,
}

impl<'a> ForwardContext<'a> {
    /// Forward and backward pass of one micro-batch.
    pub fn gradients<S: Sample>(&self, samples: &[S]) -> Result<MicroBatchResult> {
        S::Task::gradients(self, samples)
    }

    /// Forward pass of one micro-batch of held-out samples.
    pub fn evaluate<S: Sample>(&self, samples: &[S]) -> Result<EvaluatedMicroBatch> {
        S::Task::evaluate(self, samples)
    }

    /// The error for a network that cannot compute the samples of `task`.
    pub(crate) fn wrong_network(&self, task: dataset::Task) -> TrainError {
        TrainError::NotTrainable {
            message: format!(
                "the network of this run does not support the task {}",
                task.label()
            ),
        }
    }

    /// A tape that records a training micro-batch of the samples with these dataset indices. The
    /// network drops values of these samples, if it has dropout.
    pub(super) fn training_tape(&self, samples: impl Iterator<Item = u32>) -> Tape<'a> {
        self.recording_tape().with_sample_noise(SampleNoise {
            seed: self.seed,
            step: self.step,
            samples: samples.map(u64::from).collect(),
        })
    }

    /// A tape that records without dropout, for gradients outside of training.
    pub(super) fn recording_tape(&self) -> Tape<'a> {
        let (cancel, limit_bytes) = (self.cancel.clone(), self.limit_bytes);
        let tape = Tape::record_with_limit(self.parameters, cancel, self.kernels, limit_bytes);
        match self.kinks {
            None => tape,
            Some(KinkUse::Record(log)) => tape.recording_kinks(log),
            Some(KinkUse::Follow(log)) => tape.following_kinks(log),
        }
    }

    /// A tape for a forward pass without a backward pass.
    pub(crate) fn inference_tape(&self) -> Tape<'a> {
        let tape = Tape::forward_only(self.parameters, self.cancel.clone(), self.kernels);
        if self.without_adapters {
            tape.without_adapters()
        } else {
            tape
        }
    }

    /// Backward pass of one loss. Returns a gradient for every parameter and the loss of each row,
    /// and waits for the device once: reading the losses confirms the gradients, too.
    pub(super) fn backward(&self, tape: Tape, loss: Loss) -> Result<(Vec<Tensor>, Vec<f64>)> {
        let (per_row, root) = (loss.per_sample, loss.sum);
        let gradients = self.launch_backward(tape, vec![(root, 1.0)])?;
        Ok((gradients, to_f64(&per_row)?))
    }

    /// One backward pass from several losses, each with its factor. Returns a gradient for every
    /// parameter and waits for the device.
    pub(super) fn backward_from(
        &self,
        tape: Tape,
        roots: Vec<(Value, f64)>,
    ) -> Result<Vec<Tensor>> {
        let gradients = self.launch_backward(tape, roots)?;
        synchronize(self.device)?;
        Ok(gradients)
    }

    /// Launches a backward pass without waiting for the device, which may still fail to compute the
    /// returned gradients.
    fn launch_backward(&self, tape: Tape, roots: Vec<(Value, f64)>) -> Result<Vec<Tensor>> {
        let scaled = roots
            .into_iter()
            .map(|(root, factor)| (root, factor * self.loss_factor));
        let gradients = tape.backward(scaled.collect())?;
        let gradients = gradients.into_iter().zip(self.parameters.iter());
        let gradients = gradients.map(|(gradient, parameter)| match gradient {
            Some(gradient) => Ok(gradient),
            // The parameter took no part in this micro-batch.
            None => Ok(parameter.tensor.zeros_like()?),
        });
        gradients.collect()
    }
}
