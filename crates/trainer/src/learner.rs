//! What is learnt: network, parameters, optimizer, and how far they are. One step changes all of them or nothing. In a half
//! precision pieces are computed on a rounded copy of the weights, which follows each step.

use crate::average::Average;
use crate::effective_batch::Whole;
use crate::error::{Result, TrainError};
use crate::models::Network;
use crate::optimizer::Optimizer;
use crate::plan::{Compression, Plan};
use crate::precision::{LossScale, Precision};
use crate::schedule::Schedule;
use crate::skipped::{Skipped, SkippedSteps, first_non_finite};
use crate::task::{
    BALANCE, Balance, EvaluatedPiece, Heads, ImageTask, Pixels, Sample, TrainedPiece, Work,
};
use candle_core::Device;
use pressure::{Moments, RecoveryReserve};
use std::path::Path;
use tape::update::health;
use tape::{Cancel, Kernels, Parameters};

/// Steps in a row whose loss or gradient may be non-finite before the run ends.
const DIVERGED_AFTER: u32 = 5;

/// Network, parameters and optimizer on one device.
pub struct Learner {
    /// Network.
    pub network: Network,
    /// Its parameters now, as the optimizer moves them.
    pub parameters: Parameters,
    /// Moments, and the rule that uses them.
    pub optimizer: Optimizer,
    /// Moving average of the parameters, where the plan wants one.
    pub average: Option<Average>,
    schedule: Schedule,
    clip_norm: f64,
    precision: Precision,
    /// The parameters rounded for computing, in a half precision.
    rounded: Option<Parameters>,
    effective_batch: u32,
    device: Device,
    image_size: usize,
    pixels: Pixels,
    heads: Heads,
    label_smoothing: f64,
    class_weights: Option<Vec<f64>>,
    compression: Option<Compression>,
    /// Targets of a sample that its loss is summed over: tokens of a window, else 1.
    targets: u32,
    checkpointed: usize,
    limit_bytes: Option<u64>,
    skipped: SkippedSteps,
}

/// What an update did.
pub struct Update {
    /// Learning rate used.
    pub learning_rate: f64,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Why the update was skipped, when it was.
    pub skipped: Option<Skipped>,
}

impl Learner {
    /// A learner at step 0.
    pub fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let (network, mut parameters) = plan.network(device)?;
        if plan.precision.is_half() && plan.ema_decay.is_none() {
            parameters.round_frozen(plan.precision.dtype())?;
        }
        let heads = plan.heads();
        if heads.balance == Balance::Uncertainty {
            let (dtype, zeros) = (plan.precision.master_dtype(), vec![0.0; heads.terms()]);
            parameters.add(BALANCE.to_owned(), zeros, &[heads.terms()], dtype, device)?;
        }
        let optimizer =
            Optimizer::new(plan.optimizer, plan.weight_decay, &parameters)?.with_seed(plan.seed);
        let average = plan
            .ema_decay
            .map(|decay| Average::new(decay, &parameters))
            .transpose()?;
        let mut learner = Learner {
            network,
            parameters,
            optimizer,
            average,
            schedule: Schedule {
                peak: plan.learning_rate,
                warmup: plan.warmup_steps,
                steps: plan.steps,
                course: plan.course,
            },
            clip_norm: plan.clip_norm,
            precision: plan.precision,
            rounded: None,
            effective_batch: plan.effective_batch,
            device: device.clone(),
            image_size: plan.image_size as usize,
            pixels: plan.pixels(),
            heads,
            label_smoothing: plan.label_smoothing,
            class_weights: plan.class_weights.clone(),
            compression: plan.compression,
            targets: plan.targets(),
            checkpointed: plan.checkpoint_blocks as usize,
            limit_bytes: None,
            skipped: SkippedSteps::default(),
        };
        learner.round()?;
        Ok(learner)
    }

    /// The same learner, whose pieces fail as on a device without memory where they would keep more than `limit_bytes`.
    pub fn within(self, limit_bytes: Option<u64>) -> Self {
        Learner {
            limit_bytes,
            ..self
        }
    }

    /// Rounds the parameters anew after they changed. The old copy goes first: there are never two.
    fn round(&mut self) -> Result<()> {
        self.rounded = None;
        if self.precision.is_half() {
            self.rounded = Some(self.parameters.rounded(self.precision.dtype())?);
        }
        Ok(())
    }

    /// The parameters have come from a checkpoint, and with them the loss scale where there is one, and the steps skipped.
    pub fn loaded(&mut self, loss_scale: Option<LossScale>, skipped: SkippedSteps) -> Result<()> {
        self.skipped = skipped;
        self.precision = self.precision.with_loss_scale(loss_scale);
        self.round()
    }

    /// The loss scale now, where there is one.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.precision.loss_scale()
    }

    /// The steps that changed nothing until now.
    pub fn skipped(&self) -> SkippedSteps {
        self.skipped
    }

    fn loss_factor(&self) -> f64 {
        self.precision
            .loss_factor(self.effective_batch.saturating_mul(self.targets))
    }

    /// Drops weights and moments: parked. Nothing works until a new learner takes its place.
    pub fn unload(&mut self) {
        self.parameters = Parameters::default();
        self.rounded = None;
        self.optimizer.unload();
        self.average = None;
    }

    /// Weights and moments have been dropped.
    pub fn is_unloaded(&self) -> bool {
        self.parameters.is_empty()
    }

    /// A piece at work on the parameters as they are now.
    pub fn work(&self, cancel: Cancel) -> Work<'_> {
        Work {
            network: &self.network,
            parameters: self.rounded.as_ref().unwrap_or(&self.parameters),
            image_size: self.image_size,
            pixels: self.pixels,
            heads: self.heads,
            label_smoothing: self.label_smoothing,
            class_weights: self.class_weights.as_deref(),
            compression: self.compression.as_ref(),
            dtype: self.precision.dtype(),
            loss_factor: self.loss_factor(),
            checkpointed: self.checkpointed,
            device: &self.device,
            cancel,
            kernels: Kernels::Fused,
            limit_bytes: self.limit_bytes,
        }
    }

    /// The same on the parameters that are evaluated: their average where one is kept, as precise as it is.
    pub fn evaluation_work(&self, cancel: Cancel) -> Work<'_> {
        match &self.average {
            Some(average) => Work {
                parameters: &average.parameters,
                dtype: self.precision.master_dtype(),
                ..self.work(cancel)
            },
            None => self.work(cancel),
        }
    }

    /// Forward and backward over one piece.
    pub fn gradients(&self, cancel: Cancel, samples: &[Sample]) -> Result<TrainedPiece> {
        self.work(cancel).gradients(samples)
    }

    /// Forward over one piece of held-out samples.
    pub fn evaluate(&self, cancel: Cancel, samples: &[Sample]) -> Result<EvaluatedPiece> {
        self.evaluation_work(cancel).evaluate(samples)
    }

    /// The image task on the parameters as they are now.
    pub fn task(&self, cancel: Cancel) -> ImageTask<'_> {
        self.work(cancel).of_images()
    }

    /// The image task on the parameters that are evaluated.
    pub fn evaluation_task(&self, cancel: Cancel) -> ImageTask<'_> {
        self.evaluation_work(cancel).of_images()
    }

    /// Bytes of weights, trained and frozen, their rounded copy, gradients, moments and averages, as far as they are in memory.
    pub fn state_bytes(&self) -> u64 {
        let dtype = self.precision.dtype();
        let rounded = self.rounded.as_ref().map_or(0, |p| p.bytes_in(dtype));
        let averages = self.average.as_ref().map_or(0, |a| a.parameters.bytes());
        let frozen = self.parameters.frozen_bytes();
        2 * self.parameters.bytes() + frozen + rounded + self.optimizer.resident_bytes() + averages
    }

    /// Bytes of weights, moments and averages: what a checkpoint holds.
    pub fn saved_bytes(&self) -> u64 {
        let averages = self.average.as_ref().map_or(0, |a| a.parameters.bytes());
        self.parameters.bytes() + self.optimizer.bytes() + averages
    }

    /// What this training can give beside samples, where memory is short.
    pub fn reserve(&self) -> RecoveryReserve {
        RecoveryReserve {
            blocks: self.network.depth(),
            moments_bytes: self.optimizer.bytes(),
        }
    }

    /// From the next piece on, the first so many blocks keep their input only. No result changes by it.
    pub fn checkpoint_blocks(&mut self, blocks: u32) {
        self.checkpointed = blocks as usize;
    }

    /// Blocks that keep their input only.
    pub fn checkpointed_blocks(&self) -> u32 {
        self.checkpointed as u32
    }

    /// Moves the optimizer's moments to a scratch file in `folder`, or back into memory.
    pub fn keep_moments(&mut self, place: Moments, folder: &Path) -> Result<()> {
        match place {
            Moments::Resident => self.optimizer.unmap(),
            Moments::Mapped => self.optimizer.map(folder, &self.device),
        }
    }

    /// Bytes of one activation element.
    pub fn element_bytes(&self) -> u32 {
        self.precision.dtype().size_in_bytes() as u32
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// One optimizer step: divide once, clip by global norm, update. `step` counts the steps done before. In f16 a gradient
    /// that overflowed halves the loss scale as long as it can be halved.
    ///
    /// # Errors
    /// Several steps in a row without a finite gradient, and no loss scale to blame: the run has diverged.
    pub fn update(&mut self, batch: &Whole, step: u64) -> Result<Update> {
        let learning_rate = self.schedule.rate(step);
        let weight = batch.weight * self.loss_factor();
        let health = health(&batch.gradients)?;
        let gradient_norm = health.norm / weight;
        if !(gradient_norm.is_finite() && batch.loss.is_finite()) {
            let mut skipped = Skipped::found(&self.parameters, batch.loss, &health)?;
            skipped.overflowed_at = self.halve_loss_scale(batch.loss);
            self.skipped.total += 1;
            self.skipped.in_a_row += u32::from(skipped.overflowed_at.is_none());
            if self.skipped.in_a_row >= DIVERGED_AFTER {
                return Err(TrainError::Diverged {
                    step,
                    what: skipped.what,
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
        // Only steps that changed something correct the moments' bias.
        let updates = (step + 1).saturating_sub(self.skipped.total).max(1);
        let clip = (self.clip_norm / (gradient_norm + 1e-12)).min(1.0);
        self.optimizer.update(
            &mut self.parameters,
            &batch.gradients,
            learning_rate,
            clip / weight,
            updates,
        )?;
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

    /// The newest step was skipped.
    pub fn is_skipping(&self) -> bool {
        self.skipped.in_a_row > 0
    }

    /// The name of the first parameter whose values are not all finite.
    pub fn first_non_finite_weight(&self) -> Result<Option<String>> {
        first_non_finite(&self.parameters)
    }

    /// Halves the loss scale where it may be what overflowed: not when the loss itself, which is not scaled, is not finite.
    /// Gives the scale before.
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
