//! Network, parameters and optimizer. An optimizer step changes all of them or nothing. In half
//! precision, micro-batches are computed on a rounded copy of the parameters, which follows every
//! step.

use crate::error::{Result, TrainError};
use crate::gradient_accumulation::AccumulatedBatch;
use crate::lr_schedule::Schedule;
use crate::optimizer::OptimizerState;
use crate::outer_step::{OuterStep, Sum, average_parameters};
use crate::plan::{Compression, Plan};
use crate::precision::{LossScale, Precision};
use crate::skipped_steps::{Skipped, SkippedSteps, first_non_finite};
use crate::task::{
    BALANCE, Balance, EvaluatedMicroBatch, ForwardContext, Heads, MicroBatchResult,
    PixelNormalization, Sample,
};
use crate::weight_ema::WeightEma;
use candle_core::Device;
use models::{AdapterShape, Network, measure_row_norms};
use pressure::{Moments, RecoveryReserve};
use std::path::Path;
use tape::device::{synchronize, with_autorelease_pool};
use tape::optim::{Health, health};
use tape::{Cancel, Kernels, Parameters};

/// The run ends after this many consecutive steps with a non-finite loss or gradient.
const DIVERGED_AFTER: u32 = 5;

/// Network, parameters and optimizer on one device.
pub struct TrainState {
    /// Network.
    pub network: Network,
    /// Its parameters, as the optimizer updates them.
    pub parameters: Parameters,
    /// The optimizer with its state.
    pub optimizer: OptimizerState,
    /// Moving average of the parameters, if the plan asks for one.
    pub average: Option<WeightEma>,
    /// The outer steps, if the machines of a group exchange weights only every few steps.
    pub outer: Option<OuterStep>,
    schedule: Schedule,
    clip_norm: f64,
    precision: Precision,
    /// The rounded parameters, in half precision.
    rounded: Option<Parameters>,
    /// Number of targets that the loss of a step is summed over, about.
    targets_per_step: u32,
    device: Device,
    input_size: usize,
    pixels: PixelNormalization,
    heads: Heads,
    label_smoothing: f64,
    class_weights: Option<Vec<f64>>,
    preference_beta: Option<f64>,
    /// The shape of the adapters, if they are weight-decomposed.
    decomposed_adapters: Option<AdapterShape>,
    compression: Option<Compression>,
    checkpointed: usize,
    limit_bytes: Option<u64>,
    seed: u64,
    /// The step that micro-batches belong to.
    step: u64,
    skipped: SkippedSteps,
}

/// The outcome of an optimizer step.
pub struct Update {
    /// Learning rate used.
    pub learning_rate: f64,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Why the step was skipped, if it was.
    pub skipped: Option<Skipped>,
}

impl TrainState {
    /// The state before the first step.
    ///
    /// # Errors
    /// Pretrained weights cannot be read, or the device has no memory.
    pub fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let mut state = TrainState::without_moments(plan, device)?;
        state.begin_moments(None)?;
        Ok(state)
    }

    /// The state before the first step, whose optimizer has no moments yet. It cannot make a step
    /// before [`TrainState::begin_moments`].
    ///
    /// # Errors
    /// As [`TrainState::new`].
    pub fn without_moments(plan: &Plan, device: &Device) -> Result<Self> {
        with_autorelease_pool(|| TrainState::build(plan, device))
    }

    /// Makes the moments of the parameters that are `owned`, by position; of all if nothing is
    /// passed.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn begin_moments(&mut self, owned: Option<&[bool]>) -> Result<()> {
        with_autorelease_pool(|| self.optimizer.begin(&self.parameters, owned))?;
        Ok(synchronize(&self.device)?)
    }

    fn build(plan: &Plan, device: &Device) -> Result<Self> {
        let (network, mut parameters) = plan.network_to_train(device)?;
        let heads = plan.heads();
        if heads.balance == Balance::Uncertainty {
            let (dtype, zeros) = (plan.precision.master_dtype(), vec![0.0; heads.terms()]);
            parameters.add(BALANCE.to_owned(), zeros, &[heads.terms()], dtype, device)?;
        }
        let optimizer =
            OptimizerState::without_state(plan.optimizer, plan.weight_decay, &parameters)
                .with_seed(plan.seed);
        let average = plan
            .ema_decay
            .map(|decay| WeightEma::new(decay, &parameters))
            .transpose()?;
        let tuning = plan.pretrained.as_ref().map(|it| it.tuning());
        let adapters = tuning.and_then(|tuning| tuning.adapter);
        let mut state = TrainState {
            network,
            parameters,
            optimizer,
            average,
            outer: None,
            schedule: plan.schedule(),
            clip_norm: plan.clip_norm,
            precision: plan.precision,
            rounded: None,
            targets_per_step: plan.targets_per_step(),
            device: device.clone(),
            input_size: plan.input_size as usize,
            pixels: plan.pixels(),
            heads,
            label_smoothing: plan.label_smoothing,
            class_weights: plan.class_weights.clone(),
            preference_beta: plan.preference_beta,
            decomposed_adapters: adapters.filter(|shape| shape.is_weight_decomposed),
            compression: plan.compression,
            checkpointed: plan.checkpoint_blocks as usize,
            limit_bytes: None,
            seed: plan.seed,
            step: 0,
            skipped: SkippedSteps::default(),
        };
        state.round()?;
        synchronize(device)?;
        Ok(state)
    }

    /// Makes micro-batches fail as if the device had no memory when they would save more than
    /// `limit_bytes`.
    pub fn with_memory_limit(self, limit_bytes: Option<u64>) -> Self {
        TrainState {
            limit_bytes,
            ..self
        }
    }

    /// Sets the optimizer step that micro-batches belong to from now on.
    pub fn begin_step(&mut self, step: u64) {
        self.step = step;
    }

    /// Rounds the parameters after they changed, and measures what depends on them alone. The old
    /// copy is freed first, so that there are never two.
    fn round(&mut self) -> Result<()> {
        self.rounded = None;
        if self.precision.is_half() {
            self.rounded = Some(self.parameters.rounded(self.precision.dtype())?);
        }
        if let Some(shape) = self.decomposed_adapters {
            let used = self.rounded.as_mut().unwrap_or(&mut self.parameters);
            measure_row_norms(used, shape)?;
        }
        Ok(())
    }

    /// Completes a restore: the parameters have been read from a checkpoint, with this loss scale
    /// and these skipped steps.
    pub fn restored(&mut self, loss_scale: Option<LossScale>, skipped: SkippedSteps) -> Result<()> {
        self.skipped = skipped;
        self.precision = self.precision.with_loss_scale(loss_scale);
        self.round()?;
        Ok(synchronize(&self.device)?)
    }

    /// Completes a start from the weights of another run: the average begins at them.
    pub fn starts_from_weights(&mut self) -> Result<()> {
        if let Some(average) = &mut self.average {
            *average = average.restarted(&self.parameters)?;
        }
        self.round()?;
        Ok(synchronize(&self.device)?)
    }

    /// The current loss scale, in f16.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.precision.loss_scale()
    }

    /// The steps skipped so far.
    pub fn skipped(&self) -> SkippedSteps {
        self.skipped
    }

    fn loss_factor(&self) -> f64 {
        self.precision.loss_factor(self.targets_per_step)
    }

    /// Frees parameters and optimizer state, to suspend the run. The state is unusable afterwards.
    pub fn unload(&mut self) {
        self.parameters = Parameters::default();
        self.rounded = None;
        self.optimizer.unload();
        self.average = None;
        if let Some(outer) = &mut self.outer {
            outer.unload();
        }
    }

    /// Lets go of a lost device, after [`TrainState::unload`]: whatever holds it keeps its memory.
    pub fn forget_device(&mut self) {
        self.device = Device::Cpu;
    }

    /// True after [`TrainState::unload`].
    pub fn is_unloaded(&self) -> bool {
        self.parameters.is_empty()
    }

    /// The context of a training micro-batch.
    pub fn forward_context(&self, cancel: Cancel) -> ForwardContext<'_> {
        ForwardContext {
            network: &self.network,
            parameters: self.rounded.as_ref().unwrap_or(&self.parameters),
            input_size: self.input_size,
            pixels: self.pixels,
            heads: self.heads,
            label_smoothing: self.label_smoothing,
            class_weights: self.class_weights.as_deref(),
            preference_beta: self.preference_beta,
            compression: self.compression.as_ref(),
            dtype: self.precision.dtype(),
            loss_factor: self.loss_factor(),
            checkpointed: self.checkpointed,
            device: &self.device,
            cancel,
            seed: self.seed,
            step: self.step,
            kernels: Kernels::Fused,
            limit_bytes: self.limit_bytes,
            kinks: None,
            without_adapters: false,
        }
    }

    /// The context of an evaluation. It uses the moving average of the parameters if there is one,
    /// in its own precision.
    pub fn evaluation_context(&self, cancel: Cancel) -> ForwardContext<'_> {
        match &self.average {
            Some(average) => ForwardContext {
                parameters: &average.parameters,
                dtype: self.precision.master_dtype(),
                ..self.forward_context(cancel)
            },
            None => self.forward_context(cancel),
        }
    }

    /// Forward and backward pass of one micro-batch.
    ///
    /// # Errors
    /// As [`crate::task::Task::gradients`].
    pub fn gradients<S: Sample>(&self, cancel: Cancel, samples: &[S]) -> Result<MicroBatchResult> {
        self.forward_context(cancel).gradients(samples)
    }

    /// Forward pass of one micro-batch of held-out samples.
    ///
    /// # Errors
    /// As [`crate::task::Task::gradients`].
    pub fn evaluate<S: Sample>(
        &self,
        cancel: Cancel,
        samples: &[S],
    ) -> Result<EvaluatedMicroBatch> {
        self.evaluation_context(cancel).evaluate(samples)
    }

    /// Bytes in memory: trained and frozen weights, their rounded copy, gradients, optimizer state
    /// and averages.
    pub fn state_bytes(&self) -> u64 {
        let dtype = self.precision.dtype();
        let rounded = self.rounded.as_ref().map_or(0, |p| p.bytes_in(dtype));
        let averages = self.average.as_ref().map_or(0, |a| a.parameters.bytes());
        let frozen = self.parameters.frozen_bytes();
        let outer = self.outer.as_ref().map_or(0, OuterStep::bytes);
        let moments = self.optimizer.resident_bytes();
        2 * self.parameters.bytes() + frozen + rounded + moments + averages + outer
    }

    /// Bytes of a checkpoint: weights, optimizer state and averages.
    pub fn saved_bytes(&self) -> u64 {
        let averages = self.average.as_ref().map_or(0, |a| a.parameters.bytes());
        let outer = self.outer.as_ref().map_or(0, OuterStep::saved_bytes);
        self.parameters.bytes() + self.optimizer.saved_bytes() + averages + outer
    }

    /// Whether this machine has everything that a checkpoint needs: the moments of all parameters,
    /// and weights that all machines of its group have.
    pub(crate) fn is_complete(&self) -> bool {
        let is_open = self.outer.as_ref().is_some_and(OuterStep::is_open);
        self.optimizer.is_complete() && !is_open
    }

    /// Values per parameter that the machines exchange when they synchronize: the weight, its
    /// moments and its average.
    pub(crate) fn synchronized_values(&self) -> f64 {
        let averages = self.average.as_ref().map_or(0, |a| a.parameters.bytes());
        let weights = self.parameters.bytes();
        let all = weights + self.optimizer.bytes() + averages;
        all as f64 / weights.max(1) as f64
    }

    /// What the training can give up when memory is short, besides a smaller micro-batch.
    pub fn reserve(&self) -> RecoveryReserve {
        RecoveryReserve {
            blocks: self.network.depth(),
            moments_bytes: self.optimizer.bytes(),
        }
    }

    /// Sets how many blocks are checkpointed from the next micro-batch on. This changes no result.
    pub fn set_checkpoint_blocks(&mut self, blocks: u32) {
        self.checkpointed = blocks as usize;
    }

    /// Number of checkpointed blocks.
    pub fn checkpointed_blocks(&self) -> u32 {
        self.checkpointed as u32
    }

    /// Moves the optimizer state to a scratch file in `folder`, or back into memory.
    ///
    /// # Errors
    /// The file cannot be written or read. After a fault of the device the state may be wrong.
    pub fn move_moments(&mut self, place: Moments, folder: &Path) -> Result<()> {
        match place {
            Moments::Resident => self.optimizer.unmap()?,
            Moments::Mapped => self.optimizer.map(folder, &self.device)?,
        }
        Ok(synchronize(&self.device)?)
    }

    /// Bytes per element of the activations.
    pub fn element_bytes(&self) -> u32 {
        self.precision.dtype().size_in_bytes() as u32
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// One optimizer step: divide once, clip by global norm, update. `step` counts the steps done
    /// before. In f16 a gradient that overflowed halves the loss scale as long as it can be halved.
    ///
    /// # Errors
    /// Several steps in a row without a finite gradient, and no loss scale to blame: the run has
    /// diverged.
    pub fn update(&mut self, batch: &AccumulatedBatch, step: u64) -> Result<Update> {
        let health = health(&batch.gradients)?;
        self.apply(batch, &health, step, &mut |_| Ok(()))
    }

    /// [`TrainState::update`] with the health of the gradients. After the optimizer has updated the
    /// parameters that this machine owns, `spread` replaces those of other machines.
    ///
    /// # Errors
    /// As [`TrainState::update`]. After any other error the parameters may be those of two steps.
    pub fn apply(
        &mut self,
        batch: &AccumulatedBatch,
        health: &Health,
        step: u64,
        spread: &mut dyn FnMut(&mut Parameters) -> Result<()>,
    ) -> Result<Update> {
        let learning_rate = self.schedule.rate(step);
        let weight = batch.weight * self.loss_factor();
        let gradient_norm = health.norm / weight;
        if !(gradient_norm.is_finite() && batch.loss.is_finite()) {
            let mut skipped = Skipped::from_health(&self.parameters, batch.loss, health)?;
            skipped.overflowed_at = self.halve_loss_scale(batch.loss);
            self.skipped.total += 1;
            self.skipped.in_a_row += u32::from(skipped.overflowed_at.is_none());
            if self.skipped.in_a_row >= DIVERGED_AFTER {
                return Err(TrainError::Diverged {
                    step,
                    item: skipped.item,
                    times: self.skipped.in_a_row,
                    learning_rate,
                    checkpoint: None,
                });
            }
            return Ok(Update {
                learning_rate,
                gradient_norm,
                skipped: Some(skipped),
            });
        }
        self.skipped.in_a_row = 0;
        // Skipped steps do not count for the bias correction of the moments.
        let updates = (step + 1).saturating_sub(self.skipped.total).max(1);
        let clip = (self.clip_norm / (gradient_norm + 1e-12)).min(1.0);
        self.optimizer.update(
            &mut self.parameters,
            &batch.gradients,
            learning_rate,
            clip / weight,
            updates,
        )?;
        spread(&mut self.parameters)?;
        if let Some(average) = &mut self.average {
            average.follow(&self.parameters, updates)?;
        }
        if let Precision::F16(scale) = &mut self.precision {
            *scale = scale.after_clean();
        }
        self.round()?;
        Ok(Update {
            learning_rate,
            gradient_norm,
            skipped: None,
        })
    }

    /// The outcome of a step for which this machine has processed nothing, and in which only the
    /// others change their weights.
    pub(crate) fn idle_update(&self, step: u64) -> Update {
        Update {
            learning_rate: self.schedule.rate(step),
            gradient_norm: 0.0,
            skipped: None,
        }
    }

    /// Makes the outer step of all machines. This one has processed the part `weight` of the
    /// samples since the newest synchronization; `sum` adds up values of all machines. Afterwards,
    /// all have the same weights, moments and averages.
    ///
    /// # Errors
    /// A sum failed, or the device failed. The parameters may then be those of two steps.
    pub(crate) fn synchronize_machines(&mut self, weight: f64, sum: &mut Sum) -> Result<()> {
        let Some(outer) = &mut self.outer else {
            return Ok(());
        };
        outer.apply(&mut self.parameters, weight, sum)?;
        self.optimizer.average(&self.parameters, weight, sum)?;
        if let Some(average) = &mut self.average {
            average_parameters(&mut average.parameters, weight, sum)?;
        }
        self.round()
    }

    /// Takes over the counts of skipped steps of another machine.
    pub(crate) fn set_skipped(&mut self, skipped: SkippedSteps) {
        self.skipped = skipped;
    }

    /// True if the newest step was skipped.
    pub fn is_skipping(&self) -> bool {
        self.skipped.in_a_row > 0
    }

    /// The name of the first parameter with a non-finite value.
    pub fn first_non_finite_weight(&self) -> Result<Option<String>> {
        first_non_finite(&self.parameters)
    }

    /// Halves the loss scale if it may have caused the overflow, and returns the scale before. The
    /// loss itself is not scaled, so a non-finite loss has another cause.
    fn halve_loss_scale(&mut self, loss: f64) -> Option<f64> {
        match &mut self.precision {
            Precision::F16(scale) if loss.is_finite() && !scale.is_at_floor() => {
                let before = scale.value();
                *scale = scale.after_overflow();
                Some(before)
            }
            _ => None,
        }
    }
}
