//! Gradients of one effective batch in several splits, against the unsplit one.

use super::split::Split;
use crate::effective_batch::{AccumulatedBatch, EffectiveBatch};
use crate::error::Result;
use crate::task::MicroBatchResult;
use serde::Serialize;
use std::ops::Range;
use tape::Parameters;
use tape::inplace::to_f64;

/// One parameter, or the loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The parameter's name, or "the loss".
    pub name: String,
    /// Values in it.
    pub values: usize,
    /// Euclidean norm of the unsplit mean gradient; the loss itself for the loss.
    #[serde(serialize_with = "runlog::finite::serialize")]
    pub norm: f64,
    /// Largest relative difference of all splits.
    #[serde(serialize_with = "runlog::finite::serialize")]
    pub difference: f64,
    /// The split that gave it.
    pub split: Split,
}

/// All differences of one effective batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Samples of the effective batch.
    pub samples: usize,
    /// What was tried.
    pub splits: Vec<Split>,
    /// The mean loss.
    pub loss: Line,
    /// The parameters in their order.
    pub parameters: Vec<Line>,
}

impl Compared {
    /// The line that differs most.
    pub fn worst(&self) -> &Line {
        let lines = std::iter::once(&self.loss).chain(&self.parameters);
        lines
            .max_by(|a, b| a.difference.total_cmp(&b.difference))
            .unwrap_or(&self.loss)
    }
}

/// Works `samples` off unsplit, then in each of `splits`. `piece` gives the sums of a range of samples. Memory: three
/// gradients beside what a piece of all samples needs.
pub fn compare(
    parameters: &Parameters,
    samples: usize,
    splits: Vec<Split>,
    mut piece: impl FnMut(Range<usize>) -> Result<MicroBatchResult>,
) -> Result<Compared> {
    let whole_split = Split::whole(samples);
    let expected = work(&whole_split, &mut piece)?;
    let line = |name: &str, values, norm| Line {
        name: name.to_owned(),
        values,
        norm,
        difference: 0.0,
        split: whole_split.clone(),
    };
    let mut loss = line("the loss", 1, expected.loss.abs());
    let mut lines = Vec::with_capacity(parameters.len());
    for (parameter, gradient) in parameters.iter().zip(&expected.gradients) {
        let norm = norm(to_f64(gradient)?.into_iter()) / expected.weight;
        lines.push(line(&parameter.name, parameter.tensor.elem_count(), norm));
    }
    for split in &splits {
        let batch = work(split, &mut piece)?;
        loss.meet((batch.loss - expected.loss).abs(), split);
        for (line, (a, b)) in lines
            .iter_mut()
            .zip(batch.gradients.iter().zip(&expected.gradients))
        {
            let (a, b) = (to_f64(a)?, to_f64(b)?);
            let distance = a
                .iter()
                .zip(&b)
                .map(|(a, b)| a / batch.weight - b / expected.weight);
            line.meet(norm(distance), split);
        }
    }
    Ok(Compared {
        samples,
        splits,
        loss,
        parameters: lines,
    })
}

impl Line {
    /// Takes a split in that is `distance` away from the unsplit values. NaN is the largest difference of all.
    fn meet(&mut self, distance: f64, split: &Split) {
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

fn work(
    split: &Split,
    piece: &mut impl FnMut(Range<usize>) -> Result<MicroBatchResult>,
) -> Result<AccumulatedBatch> {
    let mut batch = EffectiveBatch::default();
    for range in split.ranges() {
        // The samples are the caller's: none is pending here.
        batch.add(MicroBatchResult {
            samples: 0,
            ..piece(range)?
        })?;
    }
    Ok(batch
        .finish()
        .expect("a split has a piece, and a piece has gradients"))
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}
