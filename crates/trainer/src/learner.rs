//! What is learnt: network, parameters, optimizer, and how far they are. One step changes all of them or nothing.

use crate::average::Average;
use crate::effective_batch::Whole;
use crate::error::{Result, TrainError};
use crate::image_task::ImageTask;
use crate::models::Network;
use crate::optimizer::Optimizer;
use crate::plan::Plan;
use crate::schedule::Schedule;
use candle_core::{DType, Device, Tensor};
use runlog::{NonFiniteGradient, format_count};
use tape::update::{Health, health};
use tape::{Cancel, Kernels, Parameters};

/// Steps in a row whose loss or gradient may be non-finite before the run ends.
const DIVERGED_AFTER: u32 = 5;

/// Network, parameters and optimizer on one device.
pub struct Learner {
    /// Network.
    pub network: Network,
    /// Its parameters now.
    pub parameters: Parameters,
    /// Moments, and the rule that uses them.
    pub optimizer: Optimizer,
    /// Moving average of the parameters, where the plan wants one.
    pub average: Option<Average>,
    schedule: Schedule,
    clip_norm: f64,
    dtype: DType,
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
    /// Why the update was skipped, when it was.
    pub skipped: Option<Skipped>,
}

/// A step that was left out because loss or gradient were not finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Skipped {
    /// Where it began: the loss, or the gradient or weight of a parameter by name.
    pub what: String,
    /// The gradients that were not finite, in the parameters' order.
    pub gradients: Vec<NonFiniteGradient>,
}

impl Learner {
    /// A learner at step 0.
    pub fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let dtype = if plan.double_precision {
            DType::F64
        } else {
            DType::F32
        };
        let (network, parameters) = Network::build(
            plan.model,
            plan.image_size as usize,
            plan.classes.len(),
            plan.seed,
            dtype,
            device,
        )?;
        let optimizer =
            Optimizer::new(plan.optimizer, plan.weight_decay, &parameters)?.with_seed(plan.seed);
        let average = plan
            .ema_decay
            .map(|decay| Average::new(decay, &parameters))
            .transpose()?;
        Ok(Learner {
            network,
            parameters,
            optimizer,
            average,
            schedule: Schedule {
                peak: plan.learning_rate,
                warmup: plan.warmup_steps,
                steps: plan.steps,
            },
            clip_norm: plan.clip_norm,
            dtype,
            device: device.clone(),
            image_size: plan.image_size as usize,
            label_smoothing: plan.label_smoothing,
            non_finite_in_a_row: 0,
        })
    }

    /// Drops weights and moments: parked. Nothing works until a new learner takes its place.
    pub fn unload(&mut self) {
        self.parameters = Parameters::default();
        self.optimizer.unload();
        self.average = None;
    }

    /// Weights and moments have been dropped.
    pub fn is_unloaded(&self) -> bool {
        self.parameters.is_empty()
    }

    /// The task on the parameters as they are now.
    pub fn task(&self, cancel: Cancel) -> ImageTask<'_> {
        ImageTask {
            network: &self.network,
            parameters: &self.parameters,
            image_size: self.image_size,
            label_smoothing: self.label_smoothing,
            dtype: self.dtype,
            device: &self.device,
            cancel,
            kernels: Kernels::Fused,
        }
    }

    /// The task on the parameters that are evaluated: their average where one is kept.
    pub fn evaluation_task(&self, cancel: Cancel) -> ImageTask<'_> {
        let average = self.average.as_ref().map(|average| &average.parameters);
        ImageTask {
            parameters: average.unwrap_or(&self.parameters),
            ..self.task(cancel)
        }
    }

    /// Bytes of weights, gradients, moments and averages.
    pub fn state_bytes(&self) -> u64 {
        let averages = self.average.as_ref().map_or(0, |a| a.parameters.bytes());
        2 * self.parameters.bytes() + self.optimizer.bytes() + averages
    }

    /// Bytes of one activation element.
    pub fn element_bytes(&self) -> u32 {
        self.dtype.size_in_bytes() as u32
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// One optimizer step: divide once, clip by global norm, update. `step` counts the steps done before.
    ///
    /// # Errors
    /// Several steps in a row without a finite gradient: the run has diverged.
    pub fn update(&mut self, batch: &Whole, step: u64) -> Result<Update> {
        let learning_rate = self.schedule.rate(step);
        let health = health(&batch.gradients)?;
        let gradient_norm = health.norm / batch.weight;
        if !(gradient_norm.is_finite() && batch.loss.is_finite()) {
            self.non_finite_in_a_row += 1;
            let skipped = self.skipped(batch.loss, &health)?;
            if self.non_finite_in_a_row >= DIVERGED_AFTER {
                return Err(TrainError::Diverged {
                    step,
                    what: skipped.what,
                    times: self.non_finite_in_a_row,
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
        self.non_finite_in_a_row = 0;
        let clip = (self.clip_norm / (gradient_norm + 1e-12)).min(1.0);
        self.optimizer.update(
            &mut self.parameters,
            &batch.gradients,
            learning_rate,
            clip / batch.weight,
            step + 1,
        )?;
        if let Some(average) = &mut self.average {
            average.follow(&self.parameters, step + 1)?;
        }
        Ok(Update {
            learning_rate,
            gradient_norm,
            skipped: None,
        })
    }

    /// The newest step was skipped.
    pub fn is_skipping(&self) -> bool {
        self.non_finite_in_a_row > 0
    }

    /// The name of the first parameter whose values are not all finite.
    pub fn first_non_finite_weight(&self) -> Result<Option<String>> {
        let weights: Vec<Tensor> = self.parameters.iter().map(|p| p.tensor.clone()).collect();
        let first = health(&weights)?.non_finite.into_iter().next();
        Ok(first.map(|found| self.parameters.at(found.index).name.clone()))
    }

    fn skipped(&self, loss: f64, health: &Health) -> Result<Skipped> {
        let gradients: Vec<NonFiniteGradient> = health
            .non_finite
            .iter()
            .map(|found| NonFiniteGradient {
                parameter: self.parameters.at(found.index).name.clone(),
                nan: found.nan,
                infinite: found.infinite,
            })
            .collect();
        // Backward runs from the loss to the first layer and carries what is not finite along: it began at the last.
        let begun = gradients
            .last()
            .map(|g| format!("the gradient of {}", g.parameter));
        let what = match (self.first_non_finite_weight()?, loss.is_finite(), begun) {
            (Some(name), ..) => format!("the parameter {name}"),
            (None, false, Some(gradient)) => format!("the loss, and with it {gradient},"),
            (None, false, None) => "the loss".to_owned(),
            (None, true, Some(gradient)) => gradient,
            (None, true, None) => "the norm of the gradient".to_owned(),
        };
        Ok(Skipped { what, gradients })
    }
}

impl Skipped {
    /// How much was not finite, and what came of it.
    pub fn reason(&self) -> String {
        let sum =
            |of: fn(&NonFiniteGradient) -> u64| format_count(self.gradients.iter().map(of).sum());
        format!(
            "not finite ({} NaN and {} infinite values in {} gradients); this step changed nothing and the training goes on",
            sum(|g| g.nan),
            sum(|g| g.infinite),
            self.gradients.len()
        )
    }
}
