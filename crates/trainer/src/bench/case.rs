//! One measured case: steps of one workload at one batch and micro-batch.

use super::workload::Workload;
use crate::effective_batch::EffectiveBatch;
use crate::error::Result;
use crate::optimizer::Optimizer;
use crate::plan::OptimizerKind;
use crate::precision::Precision;
use crate::task::TrainedPiece;
use candle_core::Device;
use std::time::Instant;
use tape::Parameters;
use tape::optim::global_norm;

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
    /// What pieces are computed in.
    pub precision: Precision,
    /// Moments lie in a memory-mapped file, as where a training gives all else up before it parks.
    pub moments_in_file: bool,
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
    /// Operations of matrix products and convolutions a step.
    pub flops: f64,
    /// Bytes of weights, gradients and moments.
    pub state_bytes: u64,
    /// Most bytes that the tape kept for backward at once, what a checkpointed block keeps while it runs again included.
    pub saved_bytes: u64,
    /// Most bytes that tensors held on the GPU at once, by its driver's count; 0 where it does not say.
    pub peak_device_bytes: u64,
    /// Trained parameters.
    pub parameters: usize,
    /// Mean loss of the first and the last step.
    pub losses: [f64; 2],
    /// Steps whose gradients overflowed and changed nothing: in f16, until the loss scale fits.
    pub skipped_steps: usize,
    /// Seconds of the steps before the measurement.
    pub warmup_s: [f64; WARM_UP],
    /// A number of all bits of the weights at the end, on a GPU: the same run twice ends on the same one.
    pub fingerprint: Option<u64>,
}

/// Steps before the measurement.
const WARM_UP: usize = 2;
/// Learning rate: small enough for every workload.
const LEARNING_RATE: f64 = 3e-4;
/// Weight decay, as the peers use it.
const WEIGHT_DECAY: f64 = 0.01;

/// Runs a case.
pub fn run(case: Case, device: &Device) -> Result<Row> {
    let mut precision = case.precision;
    let (model, mut parameters) = case.workload.build(precision.master_dtype(), device)?;
    let mut computed_on = rounded(&parameters, precision)?;
    let (mut skipped_steps, mut updates) = (0, 0);
    let mut optimizer = Optimizer::new(OptimizerKind::AdamW, WEIGHT_DECAY, &parameters)?;
    if case.moments_in_file {
        optimizer.map(&std::env::temp_dir(), device)?;
        // What they took before they went is no part of a step.
        tape::device::take_peak_bytes(device);
    }
    let batch = case.workload.batch(case.batch);
    // Cut before the clock runs: the bench measures training, not copies on the host.
    let parts: Vec<_> = (0..case.batch)
        .step_by(case.micro)
        .map(|from| batch.part(from, (from + case.micro).min(case.batch)))
        .collect();
    let (mut seconds, mut losses, mut saved_bytes) = (Vec::new(), Vec::new(), 0);
    let mut warmup_s = [f64::NAN; WARM_UP];
    for step in 0..WARM_UP + case.steps {
        let begun = Instant::now();
        let mut whole = EffectiveBatch::default();
        let how = (case.checkpointed, precision.loss_factor(case.batch as u32));
        for part in &parts {
            let weights = computed_on.as_ref().unwrap_or(&parameters);
            let (piece, saved) = model.piece(weights, part, device, how)?;
            saved_bytes = saved_bytes.max(saved);
            // The batch is the bench's own: none of its samples is pending.
            whole.add(TrainedPiece {
                samples: 0,
                ..piece
            })?;
        }
        let Some(whole) = whole.whole() else { continue };
        let weight = whole.weight * how.1;
        let norm = global_norm(&whole.gradients)? / weight;
        if let (false, Precision::F16(scale)) = (norm.is_finite(), &mut precision) {
            *scale = scale.after_overflow();
            skipped_steps += 1;
        } else {
            updates += 1;
            let factor = (1.0 / (norm + 1e-12)).min(1.0) / weight;
            optimizer.update(
                &mut parameters,
                &whole.gradients,
                LEARNING_RATE,
                factor,
                updates,
            )?;
            // The old copy goes first: there are never two.
            drop(computed_on.take());
            computed_on = rounded(&parameters, precision)?;
        }
        device.synchronize()?;
        losses.push(whole.loss);
        let took = begun.elapsed().as_secs_f64();
        match warmup_s.get_mut(step) {
            Some(warm_up) => *warm_up = took,
            None => seconds.push(took),
        }
    }
    let rounded_bytes = computed_on.map_or(0, |copy| copy.bytes_in(precision.dtype()));
    Ok(Row {
        s_per_step: spread(seconds),
        flops: case.workload.flops(case.batch, case.checkpointed),
        state_bytes: 2 * parameters.bytes() + rounded_bytes + optimizer.bytes(),
        skipped_steps,
        saved_bytes,
        peak_device_bytes: tape::device::take_peak_bytes(device),
        parameters: parameters.count(),
        fingerprint: fingerprint(&parameters, device)?,
        losses: [losses.first(), losses.last()].map(|loss| loss.copied().unwrap_or(f64::NAN)),
        warmup_s,
    })
}

/// FNV-1a over the bits of all weights; none on the CPU, where reading them would show in the process's highest footprint.
fn fingerprint(parameters: &Parameters, device: &Device) -> Result<Option<u64>> {
    if device.is_cpu() {
        return Ok(None);
    }
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for parameter in parameters.iter() {
        for value in parameter.tensor.flatten_all()?.to_vec1::<f32>()? {
            hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(Some(hash))
}

/// The copy that pieces of a half precision are computed on.
fn rounded(parameters: &Parameters, precision: Precision) -> Result<Option<Parameters>> {
    let dtype = precision.dtype();
    let copy = precision.is_half().then(|| parameters.rounded(dtype));
    Ok(copy.transpose()?)
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
