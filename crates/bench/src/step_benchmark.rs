//! Times the optimizer steps of one workload: forward, backward, accumulation, clipping and update.

use crate::model::{ForwardOptions, Model};
use crate::synthetic_batch::Batch;
use crate::workload::Workload;
use candle_core::Device;
use std::time::Instant;
use tape::Parameters;
use tape::device::{confirm, read, synchronize, with_autorelease_pool};
use tape::optim::global_norm;
use trainer::internals::{AccumulatedBatch, EffectiveBatch, MicroBatchResult, OptimizerState};
use trainer::{OptimizerKind, Precision, Result, TrainError};

/// A workload and how it is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// The network and its data.
    pub workload: Workload,
    /// Samples per step.
    pub batch: usize,
    /// Samples per micro-batch.
    pub micro: usize,
    /// Number of checkpointed blocks.
    pub checkpointed: usize,
    /// Steps measured, after the warm-up.
    pub steps: usize,
    /// Precision of forward and backward passes.
    pub precision: Precision,
    /// Whether the optimizer's moments are in a memory-mapped file, as in a run's last step
    /// before it suspends.
    pub moments_in_file: bool,
}

/// Summary of several measurements.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Mean of the middle two if their number is even.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

/// Result of one case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// Seconds per step.
    pub s_per_step: Spread,
    /// Operations of matrix products and convolutions per step.
    pub flops: f64,
    /// Bytes of weights, gradients and moments.
    pub state_bytes: u64,
    /// Most bytes that the tape saved for the backward pass at once, including those of a block
    /// that is recomputed.
    pub saved_bytes: u64,
    /// Most bytes of tensors on the GPU at once, as counted by its driver; 0 if it does not count
    /// them.
    pub peak_device_bytes: u64,
    /// Number of trained parameters.
    pub parameters: usize,
    /// Mean loss of the first and the last step.
    pub losses: [f64; 2],
    /// Steps that changed nothing because their gradients overflowed: in f16, until the loss scale
    /// fits.
    pub skipped_steps: usize,
    /// Seconds of each step before the measurement.
    pub warmup_s: [f64; WARM_UP],
    /// Hash of all bits of the final weights, on a GPU only. Two runs of a case give the same hash.
    pub fingerprint: Option<u64>,
}

/// Steps before the measurement.
const WARM_UP: usize = 2;
/// Small enough for every workload.
const LEARNING_RATE: f64 = 3e-4;
/// As in the trainers that Ebb is compared with.
const WEIGHT_DECAY: f64 = 0.01;
/// As in a run, each step confirms its update, so that a failure is noticed in its own step; on
/// CUDA this needs no wait. If this environment variable is `never` or `always`, no step waits
/// after the update or every step does, to measure what that wait costs. The other waits stay: they
/// return the losses and the gradient norm, which the update needs.
const WAIT: &str = "EBB_BENCH_WAIT";

/// When a step waits for the device after the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpdateWait {
    /// As in a run.
    AsInRun,
    Always,
    Never,
}

impl UpdateWait {
    /// # Errors
    /// The variable has another value.
    fn from_environment() -> Result<Self> {
        match std::env::var(WAIT).as_deref() {
            Err(_) => Ok(UpdateWait::AsInRun),
            Ok("always") => Ok(UpdateWait::Always),
            Ok("never") => Ok(UpdateWait::Never),
            Ok(other) => Err(TrainError::Setting {
                key: WAIT,
                value: other.to_owned(),
                allowed: "choose always or never".to_owned(),
            }),
        }
    }
}

/// Trains `case` on `device`. The first two steps are a warm-up.
///
/// # Errors
/// The device has too little memory or fails; the folder for temporary files cannot be written.
pub fn measure(case: Case, device: &Device) -> Result<Measurement> {
    let mut training = Training::new(case, device)?;
    let batch = case.workload.batch(case.batch);
    // Cut before the clock starts: training is measured, not copies on the host.
    let micro_batches: Vec<_> = (0..case.batch)
        .step_by(case.micro)
        .map(|from| batch.slice(from..(from + case.micro).min(case.batch)))
        .collect();
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    let mut warmup_s = [f64::NAN; WARM_UP];
    for step in 0..WARM_UP + case.steps {
        let start = Instant::now();
        let Some(loss) = training.step(&micro_batches)? else {
            continue;
        };
        losses.push(loss);
        let step_s = start.elapsed().as_secs_f64();
        match warmup_s.get_mut(step) {
            Some(warm_up) => *warm_up = step_s,
            None => seconds.push(step_s),
        }
    }
    training.measurement(seconds, &losses, warmup_s)
}

/// A case in training.
struct Training<'a> {
    case: Case,
    device: &'a Device,
    model: Model,
    parameters: Parameters,
    /// Copy of the weights in a half precision.
    rounded: Option<Parameters>,
    optimizer: OptimizerState,
    /// As in the case, with the loss scale of now.
    precision: Precision,
    /// When to wait for the device after the update.
    wait: UpdateWait,
    saved_bytes: u64,
    skipped_steps: usize,
    updates: u64,
}

impl<'a> Training<'a> {
    fn new(case: Case, device: &'a Device) -> Result<Self> {
        let (model, parameters) = case.workload.build(case.precision.master_dtype(), device)?;
        let rounded = rounded(&parameters, case.precision)?;
        let mut optimizer = OptimizerState::new(OptimizerKind::AdamW, WEIGHT_DECAY, &parameters)?;
        if case.moments_in_file {
            optimizer.map(&std::env::temp_dir(), device)?;
            // The peak before they moved is not part of a step.
            tape::device::take_peak_bytes(device);
        }
        Ok(Training {
            case,
            device,
            model,
            parameters,
            rounded,
            optimizer,
            precision: case.precision,
            wait: UpdateWait::from_environment()?,
            saved_bytes: 0,
            skipped_steps: 0,
            updates: 0,
        })
    }

    /// Works one effective batch and updates the weights. Returns its mean loss; `None` for an
    /// empty batch.
    fn step(&mut self, micro_batches: &[Batch]) -> Result<Option<f64>> {
        with_autorelease_pool(|| self.step_in_pool(micro_batches))
    }

    fn step_in_pool(&mut self, micro_batches: &[Batch]) -> Result<Option<f64>> {
        let options = ForwardOptions {
            checkpointed: self.case.checkpointed,
            loss_factor: self.precision.loss_factor(self.case.batch as u32),
        };
        let mut sums = EffectiveBatch::default();
        for batch in micro_batches {
            let weights = self.rounded.as_ref().unwrap_or(&self.parameters);
            let micro_batch = self.model.gradients(weights, batch, self.device, options)?;
            self.saved_bytes = self.saved_bytes.max(micro_batch.saved_bytes);
            // `EffectiveBatch` waits for no sample here.
            sums.add(MicroBatchResult {
                samples: 0,
                ..micro_batch.sums
            })?;
        }
        let Some(mut whole) = sums.finish() else {
            return Ok(None);
        };
        self.update(&whole, whole.weight * options.loss_factor)?;
        whole.free_gradients();
        match self.wait {
            UpdateWait::AsInRun => confirm(self.device)?,
            UpdateWait::Always => synchronize(self.device)?,
            UpdateWait::Never => {}
        }
        Ok(Some(whole.loss))
    }

    /// Clips the gradients to a norm of 1 and updates the weights. Lowers the loss scale instead if
    /// they overflowed. Reading the norm waits for the gradient sums, but nothing waits for the
    /// update.
    fn update(&mut self, whole: &AccumulatedBatch, weight: f64) -> Result<()> {
        let norm = global_norm(&whole.gradients)? / weight;
        if let (false, Precision::F16(scale)) = (norm.is_finite(), &mut self.precision) {
            *scale = scale.after_overflow();
            self.skipped_steps += 1;
            return Ok(());
        }
        self.updates += 1;
        let factor = (1.0 / (norm + 1e-12)).min(1.0) / weight;
        self.optimizer.update(
            &mut self.parameters,
            &whole.gradients,
            LEARNING_RATE,
            factor,
            self.updates,
        )?;
        // The old copy goes first, so that there are never two.
        drop(self.rounded.take());
        self.rounded = rounded(&self.parameters, self.precision)?;
        Ok(())
    }

    fn measurement(
        self,
        seconds: Vec<f64>,
        losses: &[f64],
        warmup_s: [f64; WARM_UP],
    ) -> Result<Measurement> {
        let dtype = self.precision.dtype();
        let rounded_bytes = self.rounded.map_or(0, |copy| copy.bytes_in(dtype));
        Ok(Measurement {
            s_per_step: spread(seconds),
            flops: (self.case.workload).flops(self.case.batch, self.case.checkpointed),
            state_bytes: 2 * self.parameters.bytes() + rounded_bytes + self.optimizer.bytes(),
            skipped_steps: self.skipped_steps,
            saved_bytes: self.saved_bytes,
            peak_device_bytes: tape::device::take_peak_bytes(self.device),
            parameters: self.parameters.count(),
            fingerprint: fingerprint(&self.parameters, self.device)?,
            losses: [losses.first(), losses.last()].map(|loss| loss.copied().unwrap_or(f64::NAN)),
            warmup_s,
        })
    }
}

/// FNV-1a over the bits of all weights; `None` on the CPU, where reading them would raise the
/// process's peak footprint.
fn fingerprint(parameters: &Parameters, device: &Device) -> Result<Option<u64>> {
    if device.is_cpu() {
        return Ok(None);
    }
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for parameter in parameters.iter() {
        for value in read::<f32>(&parameter.tensor)? {
            hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(Some(hash))
}

/// The weights in a half precision; `None` if `precision` is not half.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tape::fault_injection::{Fault, Injection, ScheduledFault};

    /// A step during which the device fails at this dispatch, and the number of its dispatches.
    fn step_with_failure(wait: UpdateWait, at: Option<u64>) -> (Result<Option<f64>>, u64) {
        let case = Case {
            workload: Workload::BertMini,
            batch: 1,
            micro: 1,
            checkpointed: 0,
            steps: 1,
            precision: Precision::F32,
            moments_in_file: false,
        };
        let mut training = Training::new(case, &Device::Cpu).expect("it fits into memory");
        training.wait = wait;
        let fault = |at| ScheduledFault {
            at,
            fault: Fault::Timeout,
        };
        let injection = Injection::install(at.map(fault).into_iter().collect(), 3);
        let outcome = training.step(&[case.workload.batch(1)]);
        (outcome, injection.dispatches())
    }

    #[test]
    fn a_failed_update_is_noticed_in_its_step_unless_the_waits_are_left_out() {
        let (outcome, dispatches) = step_with_failure(UpdateWait::AsInRun, None);
        assert!(outcome.is_ok_and(|loss| loss.is_some()));
        let in_update = Some(dispatches - 1);
        let (outcome, _) = step_with_failure(UpdateWait::AsInRun, in_update);
        assert!(outcome.is_err_and(|error| error.device_fault().is_some()));
        let (outcome, _) = step_with_failure(UpdateWait::Never, in_update);
        assert!(outcome.is_ok());
    }
}
