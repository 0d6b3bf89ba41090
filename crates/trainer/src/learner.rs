//! What is learnt: network, parameters, optimizer, and how far they are. One step changes all of them or nothing. In a half
//! precision pieces are computed on a rounded copy of the weights, which follows each step.

use crate::effective_batch::Whole;
use crate::error::{Result, TrainError};
use crate::image_task::ImageTask;
use crate::models::Network;
use crate::optimizer::Optimizer;
use crate::plan::Plan;
use crate::precision::{LossScale, Precision};
use crate::schedule::Schedule;
use candle_core::Device;
use tape::inplace::to_f64;
use tape::update::global_norm;
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
    schedule: Schedule,
    clip_norm: f64,
    precision: Precision,
    /// The parameters rounded for computing, in a half precision.
    rounded: Option<Parameters>,
    effective_batch: u32,
    device: Device,
    image_size: usize,
    label_smoothing: f64,
    non_finite_in_a_row: u32,
}

/// What an update did.
pub struct Update {
    /// Learning rate used.
    pub learning_rate: f64,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// The name of the first parameter with a non-finite gradient, when the update was skipped.
    pub skipped: Option<String>,
    /// The loss scale at which f16 overflowed, when that is why; it has been halved.
    pub overflowed_at: Option<f64>,
}

impl Learner {
    /// A learner at step 0.
    pub fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let (network, parameters) = Network::build(
            plan.model,
            plan.image_size as usize,
            plan.classes.len(),
            plan.seed,
            plan.precision.master_dtype(),
            device,
        )?;
        let optimizer = Optimizer::new(plan.optimizer, plan.weight_decay, &parameters)?;
        let mut learner = Learner {
            network,
            parameters,
            optimizer,
            schedule: Schedule {
                peak: plan.learning_rate,
                warmup: plan.warmup_steps,
                steps: plan.steps,
            },
            clip_norm: plan.clip_norm,
            precision: plan.precision,
            rounded: None,
            effective_batch: plan.effective_batch,
            device: device.clone(),
            image_size: plan.image_size as usize,
            label_smoothing: plan.label_smoothing,
            non_finite_in_a_row: 0,
        };
        learner.round()?;
        Ok(learner)
    }

    /// Rounds the parameters anew after they changed. The old copy goes first: there are never two.
    fn round(&mut self) -> Result<()> {
        self.rounded = None;
        if self.precision.is_half() {
            self.rounded = Some(self.parameters.rounded(self.precision.dtype())?);
        }
        Ok(())
    }

    /// The parameters have come from a checkpoint, and with them the loss scale where there is one.
    pub fn loaded(&mut self, loss_scale: Option<LossScale>) -> Result<()> {
        self.precision = self.precision.with_loss_scale(loss_scale);
        self.round()
    }

    /// The loss scale now, where there is one.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.precision.loss_scale()
    }

    fn loss_factor(&self) -> f64 {
        self.precision.loss_factor(self.effective_batch)
    }

    /// Drops weights and moments: parked. Nothing works until a new learner takes its place.
    pub fn unload(&mut self) {
        self.parameters = Parameters::default();
        self.rounded = None;
        self.optimizer.unload();
    }

    /// Weights and moments have been dropped.
    pub fn is_unloaded(&self) -> bool {
        self.parameters.is_empty()
    }

    /// The task on the parameters as they are now.
    pub fn task(&self, cancel: Cancel) -> ImageTask<'_> {
        ImageTask {
            network: &self.network,
            parameters: self.rounded.as_ref().unwrap_or(&self.parameters),
            image_size: self.image_size,
            label_smoothing: self.label_smoothing,
            dtype: self.precision.dtype(),
            loss_factor: self.loss_factor(),
            device: &self.device,
            cancel,
            kernels: Kernels::Fused,
        }
    }

    /// Bytes of weights, their rounded copy, gradients and moments.
    pub fn state_bytes(&self) -> u64 {
        let dtype = self.precision.dtype();
        let rounded = self.rounded.as_ref().map_or(0, |p| p.bytes_in(dtype));
        2 * self.parameters.bytes() + rounded + self.optimizer.bytes()
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
        let gradient_norm = global_norm(&batch.gradients)? / weight;
        if !(gradient_norm.is_finite() && batch.loss.is_finite()) {
            let what = self.first_non_finite(batch)?;
            let overflowed_at = self.halve_loss_scale(batch.loss);
            self.non_finite_in_a_row += u32::from(overflowed_at.is_none());
            if self.non_finite_in_a_row >= DIVERGED_AFTER {
                return Err(TrainError::Diverged {
                    step,
                    what,
                    times: self.non_finite_in_a_row,
                    learning_rate,
                });
            }
            return Ok(Update {
                learning_rate,
                gradient_norm,
                skipped: Some(what),
                overflowed_at,
            });
        }
        self.non_finite_in_a_row = 0;
        let clip = (self.clip_norm / (gradient_norm + 1e-12)).min(1.0);
        self.optimizer.update(
            &mut self.parameters,
            &batch.gradients,
            learning_rate,
            clip / weight,
            step + 1,
        )?;
        if let Precision::F16(scale) = &mut self.precision {
            *scale = scale.after_clean();
        }
        self.round()?;
        Ok(Update {
            learning_rate,
            gradient_norm,
            skipped: None,
            overflowed_at: None,
        })
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

    fn first_non_finite(&self, batch: &Whole) -> Result<String> {
        for (parameter, gradient) in self.parameters.iter().zip(&batch.gradients) {
            if to_f64(gradient)?.iter().any(|v| !v.is_finite()) {
                return Ok(format!("the gradient of {}", parameter.name));
            }
        }
        Ok("the loss".to_owned())
    }
}
