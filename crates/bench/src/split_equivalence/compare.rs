//! Compares the gradients of one effective batch in several splits with the unsplit gradient.

use super::splits_to_try::BatchSplit;
use serde::Serialize;
use std::ops::Range;
use tape::Parameters;
use tape::inplace::to_f64;
use trainer::Result;
use trainer::internals::{AccumulatedBatch, EffectiveBatch, MicroBatchResult};

/// Largest difference of one parameter's gradient, or of the loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The parameter's name, or "the loss".
    pub name: String,
    /// Number of values of the parameter.
    pub values: usize,
    /// Euclidean norm of the unsplit mean gradient, or the absolute loss.
    #[serde(serialize_with = "runlog::json_floats::serialize")]
    pub norm: f64,
    /// Largest relative difference of all splits; NaN is larger than any number.
    #[serde(serialize_with = "runlog::json_floats::serialize")]
    pub difference: f64,
    /// The split with this difference.
    pub split: BatchSplit,
}

/// All differences of one effective batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Number of samples of the effective batch.
    pub samples: usize,
    /// The splits that were tried.
    pub splits: Vec<BatchSplit>,
    /// Of the mean loss.
    pub loss: Difference,
    /// In the order of the parameters.
    pub parameters: Vec<Difference>,
}

impl Comparison {
    /// The largest difference.
    pub fn worst(&self) -> &Difference {
        let all = std::iter::once(&self.loss).chain(&self.parameters);
        all.max_by(|a, b| a.difference.total_cmp(&b.difference))
            .unwrap_or(&self.loss)
    }
}

/// Computes the gradient of `samples` unsplit and in each of `splits`. `gradients` gives the sums
/// of a range of samples.
///
/// Takes the memory of three gradients on top of a micro-batch of all samples.
pub fn compare(
    parameters: &Parameters,
    samples: usize,
    splits: Vec<BatchSplit>,
    mut gradients: impl FnMut(Range<usize>) -> Result<MicroBatchResult>,
) -> Result<Comparison> {
    let unsplit = BatchSplit::unsplit(samples);
    let expected = accumulate(&unsplit, &mut gradients)?;
    let no_difference = |name: &str, values, norm| Difference {
        name: name.to_owned(),
        values,
        norm,
        difference: 0.0,
        split: unsplit.clone(),
    };
    let mut loss = no_difference("the loss", 1, expected.loss.abs());
    let mut differences = Vec::with_capacity(parameters.len());
    for (parameter, gradient) in parameters.iter().zip(&expected.gradients) {
        let norm = norm(to_f64(gradient)?.into_iter()) / expected.weight;
        let values = parameter.tensor.elem_count();
        differences.push(no_difference(&parameter.name, values, norm));
    }
    for split in &splits {
        let batch = accumulate(split, &mut gradients)?;
        loss.update((batch.loss - expected.loss).abs(), split);
        let pairs = batch.gradients.iter().zip(&expected.gradients);
        for (difference, (a, b)) in differences.iter_mut().zip(pairs) {
            let (a, b) = (to_f64(a)?, to_f64(b)?);
            let distance = a
                .iter()
                .zip(&b)
                .map(|(a, b)| a / batch.weight - b / expected.weight);
            difference.update(norm(distance), split);
        }
    }
    Ok(Comparison {
        samples,
        splits,
        loss,
        parameters: differences,
    })
}

impl Difference {
    /// Takes a split into account that is `distance` away from the unsplit values.
    fn update(&mut self, distance: f64, split: &BatchSplit) {
        let difference = if distance == 0.0 {
            0.0
        } else {
            distance / self.norm
        };
        if difference.is_nan() || difference > self.difference {
            (self.difference, self.split) = (difference.abs(), split.clone());
        }
    }
}

fn accumulate(
    split: &BatchSplit,
    gradients: &mut impl FnMut(Range<usize>) -> Result<MicroBatchResult>,
) -> Result<AccumulatedBatch> {
    let mut batch = EffectiveBatch::default();
    for range in split.ranges() {
        // `EffectiveBatch` waits for no sample here.
        batch.add(MicroBatchResult {
            samples: 0,
            ..gradients(range)?
        })?;
    }
    Ok(batch
        .finish()
        .expect("a split has at least one micro-batch, and every micro-batch has gradients"))
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}
