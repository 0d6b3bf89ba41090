//! Image classification: from samples to pixels on the device, to a loss and its gradients, to what a photograph shows.

use super::{EvaluatedPiece, Sums, TrainedPiece};
use crate::error::Result;
use crate::models::Network;
use candle_core::{DType, Device, Tensor};
use dataset::Sample;
use rayon::prelude::*;
use std::borrow::Borrow;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Tape, Value};

/// Mean and deviation of each channel over natural photographs, as published with ImageNet models.
pub(crate) const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
pub(crate) const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// How the pixels of a channel, from 0 to 1, are normalised: less `mean`, over `deviation`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pixels {
    /// By channel: red, green, blue.
    pub mean: [f32; 3],
    /// By channel.
    pub deviation: [f32; 3],
}

impl Default for Pixels {
    fn default() -> Self {
        Pixels {
            mean: MEAN,
            deviation: DEVIATION,
        }
    }
}

/// What a photograph shows, or a text is: classes with their probabilities, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Label and probability.
    pub classes: Vec<(u32, f64)>,
}

/// Everything a piece needs beside its samples.
pub struct ImageTask<'a> {
    /// Network.
    pub network: &'a Network,
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// Side of the image.
    pub image_size: usize,
    /// How pixels are normalised.
    pub pixels: Pixels,
    /// Label smoothing of the training loss.
    pub label_smoothing: f64,
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

impl ImageTask<'_> {
    /// Forward and backward over one piece. Waits for the device: an earlier GPU error shows here and nowhere else.
    pub fn gradients<S: Borrow<Sample> + Sync>(&self, samples: &[S]) -> Result<TrainedPiece> {
        let tape = Tape::record_within(
            self.parameters,
            self.cancel.clone(),
            self.kernels,
            self.limit_bytes,
        );
        let loss = {
            let images = Value::constant(self.images(samples)?);
            let scores = self.network.forward(&tape, &images, self.checkpointed)?;
            tape.cross_entropy(&scores, &labels(samples), self.label_smoothing)?
        };
        let (per_sample, root) = (loss.per_sample, loss.sum);
        let gradients = tape.backward(vec![(root, self.loss_factor)])?;
        let gradients = gradients
            .into_iter()
            .zip(self.parameters.iter())
            .map(|(gradient, parameter)| match gradient {
                Some(gradient) => Ok(gradient),
                // A parameter that took no part in this piece.
                None => Ok(parameter.tensor.zeros_like()?),
            })
            .collect::<Result<Vec<_>>>()?;
        self.device.synchronize()?;
        // Summed on the host in f64, sample by sample: the split cannot change it beyond each sample's own rounding.
        let losses = to_f64(&per_sample)?;
        let not_finite = losses.iter().zip(samples).filter(|(l, _)| !l.is_finite());
        Ok(TrainedPiece {
            gradients,
            loss: losses.iter().sum(),
            weight: samples.len() as f64,
            samples: samples.len(),
            not_finite: not_finite
                .map(|(_, sample)| sample.borrow().index)
                .collect(),
            measures: Sums::default(),
        })
    }

    /// Forward over one piece of held-out samples. Metrics become plain numbers at once.
    pub fn evaluate<S: Borrow<Sample> + Sync>(&self, samples: &[S]) -> Result<EvaluatedPiece> {
        let tape = Tape::forward_only(self.parameters, self.cancel.clone(), self.kernels);
        let scores = self
            .network
            .forward(&tape, &Value::constant(self.images(samples)?), 0)?;
        let labels = labels(samples);
        let losses = tape.cross_entropy(&scores, &labels, 0.0)?.per_sample;
        self.device.synchronize()?;
        let mut piece = EvaluatedPiece {
            samples: samples.len() as u64,
            weight: samples.len() as f64,
            ..Default::default()
        };
        piece.loss = to_f64(&losses)?.iter().sum();
        let classes = scores.tensor().dim(1)?;
        for (scores, &label) in to_f64(scores.tensor())?.chunks_exact(classes).zip(&labels) {
            let better = ranked(scores, label).better;
            piece.right += u64::from(better == 0);
            piece.in_top_5 += u64::from(better < 5);
        }
        Ok(piece)
    }

    /// What each photograph shows.
    pub fn predict<S: Borrow<Sample> + Sync>(&self, samples: &[S]) -> Result<Vec<Prediction>> {
        let tape = Tape::forward_only(self.parameters, self.cancel.clone(), self.kernels);
        let scores = self
            .network
            .forward(&tape, &Value::constant(self.images(samples)?), 0)?;
        let classes = scores.tensor().dim(1)?;
        Ok(to_f64(scores.tensor())?
            .chunks_exact(classes)
            .map(prediction)
            .collect())
    }

    /// [samples, 3, side, side], normalised by channel.
    fn images<S: Borrow<Sample> + Sync>(&self, samples: &[S]) -> Result<Tensor> {
        let plane = self.image_size * self.image_size;
        let mut values = vec![0.0; samples.len() * 3 * plane];
        let rows = values.par_chunks_exact_mut(3 * plane).zip(samples);
        rows.for_each(|(row, sample)| normalise(row, sample.borrow(), plane, &self.pixels));
        let shape = (samples.len(), 3, self.image_size, self.image_size);
        let images = Tensor::from_vec(values, shape, self.device)?;
        Ok(if self.dtype == DType::F32 {
            images
        } else {
            images.to_dtype(self.dtype)?
        })
    }
}

/// Bytes of one sample to normalised values, channel by channel.
fn normalise(row: &mut [f32], sample: &Sample, plane: usize, by: &Pixels) {
    let channels = row
        .chunks_exact_mut(plane)
        .zip(sample.pixels.chunks_exact(plane));
    for (channel, (values, pixels)) in channels.enumerate() {
        let (scale, shift) = (
            1.0 / (255.0 * by.deviation[channel]),
            by.mean[channel] / by.deviation[channel],
        );
        for (value, &pixel) in values.iter_mut().zip(pixels) {
            *value = f32::from(pixel) * scale - shift;
        }
    }
}

fn labels<S: Borrow<Sample>>(samples: &[S]) -> Vec<u32> {
    samples.iter().map(|sample| sample.borrow().label).collect()
}

/// Where the right class stands among the scores of one sample.
pub(super) struct Ranked {
    /// Classes with a better score.
    pub better: usize,
    /// The class with the best score.
    pub best: u32,
}

/// Ranks the scores of a sample of class `label`.
pub(super) fn ranked(scores: &[f64], label: u32) -> Ranked {
    let own = scores[label as usize];
    // Where the own score is no number nothing compares as better: that is no right answer.
    let better = match own.is_finite() {
        true => scores
            .iter()
            .filter(|score| **score > own || score.is_nan())
            .count(),
        false => scores.len(),
    };
    let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    Ranked {
        better,
        best: best.unwrap_or(0) as u32,
    }
}

/// Softmax of one row, best first.
pub(super) fn prediction(scores: &[f64]) -> Prediction {
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let total: f64 = exponentials.iter().sum();
    let mut classes: Vec<(u32, f64)> = exponentials
        .iter()
        .enumerate()
        .map(|(i, e)| (i as u32, e / total))
        .collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    Prediction { classes }
}
