//! Image classification: from samples to pixels on the device, to a loss and its gradients, to what a photograph shows.

use super::heads::{BALANCE, DELTA, targets};
use super::{EvaluatedPiece, Heads, NumberErrors, Sums, TrainedPiece};
use crate::error::Result;
use crate::models::Network;
use candle_core::{DType, Device, Tensor};
use dataset::Sample;
use rayon::prelude::*;
use std::borrow::Borrow;
use tape::inplace::to_f64;
use tape::{Cancel, ClassRule, ClassTargets, Kernels, Parameters, RegressionTargets, Tape, Value};

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
    /// Numbers, in deviations from the mean of their columns.
    pub numbers: Vec<f64>,
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
    /// What the network gives, and how much each loss counts.
    pub heads: Heads,
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
        let tape = Tape::record_with_limit(
            self.parameters,
            self.cancel.clone(),
            self.kernels,
            self.limit_bytes,
        );
        let weights = self.heads.weights(self.parameters)?;
        // The loss of each sample, and of each term over the piece.
        let (mut losses, mut sums) = (vec![0.0; samples.len()], vec![0.0; weights.len()]);
        let mut terms = Vec::with_capacity(weights.len());
        {
            let images = Value::constant(self.images(samples)?);
            let outputs = self.network.forward(&tape, &images, self.checkpointed)?;
            if let Some(scores) = self.heads.scores(&tape, &outputs)? {
                terms.push((self.class_loss(&tape, &scores, samples)?, 1.0));
            }
            for k in 0..self.heads.numbers {
                let (values, present, factor) = targets(samples, k);
                let targets = RegressionTargets {
                    values: &values,
                    present: Some(&present),
                };
                let number = self.heads.number(&tape, &outputs, k)?;
                terms.push((tape.huber(&number, targets, DELTA)?, factor));
            }
        }
        let mut roots = Vec::with_capacity(terms.len());
        let mut by_term = Vec::with_capacity(terms.len());
        for ((loss, factor), (weight, _)) in terms.into_iter().zip(&weights) {
            roots.push((loss.sum, weight * factor * self.loss_factor));
            by_term.push((loss.per_sample, factor));
        }
        let gradients = tape.backward(roots)?;
        self.device.synchronize()?;
        // Summed on the host in f64, sample by sample: the split cannot change it beyond each sample's own rounding.
        for (((per_sample, factor), (weight, offset)), sum) in
            by_term.into_iter().zip(&weights).zip(&mut sums)
        {
            for (loss, own) in losses.iter_mut().zip(to_f64(&per_sample)?) {
                *loss += weight * factor * own + offset;
                *sum += factor * own;
            }
        }
        let gradients = gradients
            .into_iter()
            .zip(self.parameters.iter())
            .map(|(gradient, parameter)| match gradient {
                Some(gradient) => Ok(gradient),
                None if parameter.name == BALANCE => {
                    self.of_balance(&parameter.tensor, &weights, &sums, samples.len())
                }
                // A parameter that took no part in this piece.
                None => Ok(parameter.tensor.zeros_like()?),
            })
            .collect::<Result<Vec<_>>>()?;
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

    /// Cross-entropy; mixed samples have shares of two classes.
    fn class_loss<S: Borrow<Sample>>(
        &self,
        tape: &Tape,
        scores: &Value,
        samples: &[S],
    ) -> Result<tape::Loss> {
        let rule = ClassRule {
            smoothing: self.label_smoothing,
            class_weights: None,
        };
        if samples
            .iter()
            .all(|sample| sample.borrow().partner.is_none())
        {
            let labels = labels(samples);
            return Ok(tape.class_cross_entropy(scores, ClassTargets::Labels(&labels), &rule)?);
        }
        let shares = shares(samples, self.heads.classes);
        Ok(tape.class_cross_entropy(scores, ClassTargets::Probabilities(&shares), &rule)?)
    }

    /// The gradient of `exp(-s) sum + n s / 2` by each log variance `s`.
    fn of_balance(
        &self,
        like: &Tensor,
        weights: &[(f64, f64)],
        sums: &[f64],
        samples: usize,
    ) -> Result<Tensor> {
        let of = |((weight, _), sum): (&(f64, f64), &f64)| {
            self.loss_factor * (samples as f64 / 2.0 - weight * sum)
        };
        let values: Vec<f64> = weights.iter().zip(sums).map(of).collect();
        Ok(Tensor::new(values, self.device)?.to_dtype(like.dtype())?)
    }

    /// Forward over one piece of held-out samples. Metrics become plain numbers at once.
    pub fn evaluate<S: Borrow<Sample> + Sync>(&self, samples: &[S]) -> Result<EvaluatedPiece> {
        let tape = Tape::forward_only(self.parameters, self.cancel.clone(), self.kernels);
        let images = Value::constant(self.images(samples)?);
        let outputs = self.network.forward(&tape, &images, 0)?;
        let mut piece = EvaluatedPiece {
            samples: samples.len() as u64,
            weight: samples.len() as f64,
            ..Default::default()
        };
        if let Some(scores) = self.heads.scores(&tape, &outputs)? {
            let labels = labels(samples);
            let losses = tape.cross_entropy(&scores, &labels, 0.0)?.per_sample;
            self.device.synchronize()?;
            piece.loss = to_f64(&losses)?.iter().sum();
            let scores = to_f64(scores.tensor())?;
            for (scores, &label) in scores.chunks_exact(self.heads.classes).zip(&labels) {
                let Ranked { better, best } = ranked(scores, label);
                piece.right += u64::from(better == 0);
                piece.in_top_5 += u64::from(better < 5);
                piece.confusion.count(label, best);
            }
        }
        for k in 0..self.heads.numbers {
            let (values, present, _) = targets(samples, k);
            let rule = RegressionTargets {
                values: &values,
                present: Some(&present),
            };
            let number = self.heads.number(&tape, &outputs, k)?;
            let losses = tape.huber(&number, rule, DELTA)?.per_sample;
            self.device.synchronize()?;
            let found = to_f64(number.tensor())?;
            let targets = values.iter().map(|&value| f64::from(value)).zip(&present);
            let errors = found.iter().zip(targets).filter(|(_, (_, there))| **there);
            piece.numbers.push(NumberErrors {
                loss: to_f64(&losses)?.iter().sum(),
                absolute: errors
                    .map(|(found, (value, _))| ((found - value).abs(), value.abs()))
                    .collect(),
            });
        }
        Ok(piece)
    }

    /// What each photograph shows.
    pub fn predict<S: Borrow<Sample> + Sync>(&self, samples: &[S]) -> Result<Vec<Prediction>> {
        let tape = Tape::forward_only(self.parameters, self.cancel.clone(), self.kernels);
        let images = Value::constant(self.images(samples)?);
        let outputs = self.network.forward(&tape, &images, 0)?;
        let rows = to_f64(outputs.tensor())?;
        let row = |row: &[f64]| {
            let (scores, numbers) = row.split_at(self.heads.classes);
            Prediction {
                numbers: numbers.to_vec(),
                ..prediction(scores)
            }
        };
        Ok(rows
            .chunks_exact(self.heads.outputs().max(1))
            .map(row)
            .collect())
    }

    /// [samples, 3, side, side], normalised by channel.
    fn images<S: Borrow<Sample> + Sync>(&self, samples: &[S]) -> Result<Tensor> {
        let plane = self.image_size * self.image_size;
        let mut values = vec![0.0; samples.len() * 3 * plane];
        let rows = values.par_chunks_exact_mut(3 * plane).zip(samples);
        rows.for_each(|(row, sample)| normalise(row, sample.borrow(), plane, &self.pixels));
        let shape = [samples.len(), 3, self.image_size, self.image_size];
        let images = match self.device.is_cpu() {
            true => Tensor::from_vec(values, &shape, self.device)?,
            false => tape::device::upload(&values, &shape, self.device)?,
        };
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

/// The shares of all classes in each sample, [samples, classes].
fn shares<S: Borrow<Sample>>(samples: &[S], classes: usize) -> Vec<f32> {
    let mut shares = vec![0.0; samples.len() * classes];
    for (row, sample) in shares.chunks_exact_mut(classes.max(1)).zip(samples) {
        let sample = sample.borrow();
        let (partner, share) = sample.partner.unwrap_or((sample.label, 0.0));
        row[sample.label as usize] += 1.0 - share;
        row[partner as usize] += share;
    }
    shares
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
    Prediction {
        classes,
        numbers: Vec::new(),
    }
}
