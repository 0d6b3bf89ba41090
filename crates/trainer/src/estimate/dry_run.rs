//! Dry runs: micro-batches of a few sizes run on parameters of zeros, without the expensive
//! products. They allocate what training allocates, in a fraction of the time. They run on the CPU,
//! whatever device will train.

use super::Target;
use super::micro_batch_memory::HeapProfile;
use crate::error::Result;
use crate::plan::{Compression, Plan};
use crate::precision::Precision;
use crate::task::{ForwardContext, MicroBatchResult, Task, with_task};
use crate::task_conversion::network_task;
use crate::threads::on_threads;
use candle_core::Device;
use models::{Heads, ModelId, Network, PixelNormalization};
use std::time::{Duration, Instant};
use tape::{Cancel, Kernels, Parameters, dry_run};

/// Sizes that run however long they take, since a straight line needs two.
const FIRST_SIZES: [u32; 2] = [1, 2];
/// Sizes that run next if there is time. A convolution sums its gradient in up to eight parts, one
/// per sample, so a line through fewer samples would be too steep.
const LATER_SIZES: [u32; 2] = [8, 16];
/// Sizes that run next with checkpointed blocks, which are computed eight samples at a time. One
/// such part is neither cut nor joined, so the line goes through two and three parts.
const LATER_SIZES_CHECKPOINTED: [u32; 3] = [8, 16, 24];

/// Multiplications of the forward pass with which the time of a text model is measured: a second or
/// two on two cores.
const MAX_TIMED_PRODUCTS: usize = 70_000_000_000;
/// Fewest tokens with which it is measured.
const MIN_TIMED_TOKENS: usize = 16;

/// A network that can run a micro-batch of made-up samples.
pub trait DryRun: Sync {
    /// Runs forward and backward over `samples` made-up samples with `checkpointed` blocks. The
    /// result is still allocated when a recording ends.
    ///
    /// # Errors
    /// The process has too little memory.
    fn run(
        &self,
        samples: usize,
        checkpointed: usize,
        kernels: Kernels,
    ) -> Result<MicroBatchResult>;
}

impl HeapProfile {
    /// Measures micro-batches of several sizes within about `time`.
    pub(super) fn measure(
        network: &dyn DryRun,
        checkpointed: u32,
        target: &Target,
        time: Duration,
    ) -> Result<Self> {
        let (threads, kernels) = (target.threads, target.kernels);
        on_threads(1, move || {
            let start = Instant::now();
            let mut profile = HeapProfile::default();
            let mut measure_size = |samples: u32| -> Result<Duration> {
                let start = Instant::now();
                let run = || network.run(samples as usize, checkpointed as usize, kernels);
                let (result, events) = dry_run(threads, run);
                result?;
                profile.add(samples, &events);
                Ok(start.elapsed())
            };
            let (mut last_time, mut last_samples) = (Duration::ZERO, 1);
            for samples in FIRST_SIZES {
                (last_time, last_samples) = (measure_size(samples)?, samples);
            }
            let sizes: &[u32] = match checkpointed {
                0 => &LATER_SIZES,
                _ => &LATER_SIZES_CHECKPOINTED,
            };
            for &samples in sizes {
                let expected = last_time * samples / last_samples;
                if start.elapsed() + expected > time {
                    break;
                }
                (last_time, last_samples) = (measure_size(samples)?, samples);
            }
            Ok(profile)
        })
    }
}

/// The network of a plan.
pub(super) struct PlanDryRun {
    network: Network,
    parameters: Parameters,
    input_size: usize,
    task: dataset::Task,
    pixels: PixelNormalization,
    heads: Heads,
    label_smoothing: f64,
    precision: Precision,
    preference_beta: Option<f64>,
    compression: Option<Compression>,
}

impl PlanDryRun {
    /// The network of a plan with another model or input size, and its weights in the optimizer's
    /// precision.
    pub fn new(plan: &Plan, model: ModelId, input_size: u32) -> Result<(Self, Parameters)> {
        let (network, masters) = plan.network_of_zeros(model, input_size)?;
        let parameters = if plan.precision.is_half() {
            masters.rounded(plan.precision.dtype())?
        } else {
            masters.clone()
        };
        let dry_run = PlanDryRun {
            network,
            parameters,
            input_size: input_size as usize,
            task: network_task(model.task()),
            pixels: plan.pixels(),
            heads: plan.heads(),
            label_smoothing: plan.label_smoothing,
            precision: plan.precision,
            preference_beta: plan.preference_beta,
            compression: plan.compression,
        };
        Ok((dry_run, masters))
    }

    /// Seconds per sample of a real micro-batch of `samples`. A large text model is measured on
    /// fewer tokens.
    pub fn seconds_per_sample(&self, samples: usize, checkpointed: usize) -> Result<f64> {
        let (samples, size) = self.timed(samples.max(1));
        let context = ForwardContext {
            input_size: size,
            ..self.context(checkpointed, Kernels::Fused)
        };
        with_task!(self.task, T => {
            let samples = zero_samples::<T>(&context, samples);
            // The first one warms caches and the allocator.
            context.gradients(&samples)?;
            let start = Instant::now();
            context.gradients(&samples)?;
            let seconds = start.elapsed().as_secs_f64() / samples.len() as f64;
            Ok(seconds * self.input_size as f64 / size as f64)
        })
    }

    /// The samples and the input size with which the time is measured.
    fn timed(&self, samples: usize) -> (usize, usize) {
        if self.task == dataset::Task::ImageClassification {
            return (samples, self.input_size);
        }
        let frozen = self.parameters.frozen();
        let weights = self.parameters.count() + frozen.map(|(_, it)| it.count()).sum::<usize>();
        let tokens = MAX_TIMED_PRODUCTS / weights.max(1);
        let samples = (tokens / self.input_size.max(1)).clamp(1, samples);
        let least = MIN_TIMED_TOKENS.min(self.input_size);
        (samples, (tokens / samples).clamp(least, self.input_size))
    }

    fn context(&self, checkpointed: usize, kernels: Kernels) -> ForwardContext<'_> {
        ForwardContext {
            network: &self.network,
            parameters: &self.parameters,
            input_size: self.input_size,
            pixels: self.pixels,
            heads: self.heads,
            label_smoothing: self.label_smoothing,
            class_weights: None,
            preference_beta: self.preference_beta,
            compression: self.compression.as_ref(),
            checkpointed,
            dtype: self.precision.dtype(),
            loss_factor: 1.0,
            limit_bytes: None,
            kinks: None,
            without_adapters: false,
            device: &Device::Cpu,
            cancel: Cancel::default(),
            seed: 0,
            step: 0,
            kernels,
        }
    }
}

impl DryRun for PlanDryRun {
    fn run(
        &self,
        samples: usize,
        checkpointed: usize,
        kernels: Kernels,
    ) -> Result<MicroBatchResult> {
        let context = self.context(checkpointed, kernels);
        with_task!(self.task, T => context.gradients(&zero_samples::<T>(&context, samples)))
    }
}

/// The largest samples of a task, all zeros.
fn zero_samples<T: Task>(context: &ForwardContext, count: usize) -> Vec<T::Sample> {
    let sample = |index| T::zero_sample(context, index);
    (0..count as u32).map(sample).collect()
}
