//! One measured case: steps of one workload at one batch and micro-batch.

use super::workload::Workload;
use crate::effective_batch::EffectiveBatch;
use crate::error::Result;
use crate::image_task::TrainedPiece;
use crate::optimizer::Optimizer;
use crate::plan::OptimizerKind;
use candle_core::Device;
use std::time::Instant;
use tape::inplace::to_f64;
use tape::update::global_norm;
use tape::{Cancel, Kernels, Tape};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Workload.
    pub workload: Workload,
    /// Samples a step.
    pub batch: usize,
    /// Samples a piece.
    pub micro: usize,
    /// Blocks that keep their input only.
    pub checkpointed: usize,
    /// Steps measured, after the warm-up.
    pub steps: usize,
}

/// Smallest, middle and largest of several measurements.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Middle.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Seconds a step.
    pub s_per_step: Spread,
    /// Bytes of weights, gradients and moments.
    pub state_bytes: u64,
    /// Most bytes that the tape kept for backward.
    pub saved_bytes: u64,
    /// Trained parameters.
    pub parameters: usize,
    /// Loss of the first and the last step.
    pub losses: (f64, f64),
}

/// Steps before the measurement.
const WARM_UP: usize = 2;
/// Learning rate: small enough for every workload.
const LEARNING_RATE: f64 = 3e-4;
/// Weight decay, as the peers use it.
const WEIGHT_DECAY: f64 = 0.01;

/// Runs a case.
pub fn run(case: Case, device: &Device) -> Result<Row> {
    let (model, mut parameters) = case.workload.build(device)?;
    let mut optimizer = Optimizer::new(OptimizerKind::AdamW, WEIGHT_DECAY, &parameters)?;
    let batch = case.workload.batch(case.batch);
    let (mut seconds, mut losses, mut saved_bytes) = (Vec::new(), Vec::new(), 0);
    for step in 0..WARM_UP + case.steps {
        let begun = Instant::now();
        let mut whole = EffectiveBatch::default();
        for from in (0..case.batch).step_by(case.micro) {
            let part = batch.part(from, (from + case.micro).min(case.batch));
            let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
            let loss = model.loss(&tape, &part, device, case.checkpointed)?;
            saved_bytes = saved_bytes.max(tape.peak_saved_bytes());
            let (per_row, root) = (loss.per_sample, loss.sum);
            let gradients = tape
                .backward(vec![(root, 1.0)])?
                .into_iter()
                .flatten()
                .collect();
            device.synchronize()?;
            let loss = to_f64(&per_row)?.iter().sum();
            whole.add(TrainedPiece {
                gradients,
                loss,
                weight: part.weight(),
                samples: 0,
            })?;
        }
        let Some(whole) = whole.whole() else { continue };
        let norm = global_norm(&whole.gradients)? / whole.weight;
        let factor = (1.0 / (norm + 1e-12)).min(1.0) / whole.weight;
        optimizer.update(
            &mut parameters,
            &whole.gradients,
            LEARNING_RATE,
            factor,
            step as u64 + 1,
        )?;
        device.synchronize()?;
        losses.push(whole.loss);
        if step >= WARM_UP {
            seconds.push(begun.elapsed().as_secs_f64());
        }
    }
    Ok(Row {
        s_per_step: spread(seconds),
        state_bytes: 2 * parameters.bytes() + optimizer.bytes(),
        saved_bytes,
        parameters: parameters.count(),
        losses: (
            losses.first().copied().unwrap_or(f64::NAN),
            losses.last().copied().unwrap_or(f64::NAN),
        ),
    })
}

fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        at(middle)
    } else {
        0.5 * (at(middle.wrapping_sub(1)) + at(middle))
    };
    Spread {
        min: at(0),
        median,
        max: at(values.len().wrapping_sub(1)),
    }
}
