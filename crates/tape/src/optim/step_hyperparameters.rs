//! The numbers of one optimizer step, shared by the functions for one parameter and for many at
//! once.

/// The numbers of one AdamW step on one parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWStep {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay; 0 for norms and biases.
    pub weight_decay: f64,
    /// Steps done, including this one.
    pub step: u64,
    /// Factor on the gradient: one over the weight of the effective batch, times clipping.
    pub gradient_factor: f64,
}

impl AdamWStep {
    /// The bias corrections of both moments: `1 - bᵗ`.
    pub(super) fn corrections(&self) -> (f64, f64) {
        let t = self.step as f64;
        (1.0 - self.beta1.powf(t), 1.0 - self.beta2.powf(t))
    }
}

/// The numbers of one SGD step on one parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the momentum buffer.
    pub momentum: f64,
    /// Weight decay, added to the gradient; 0 for norms and biases.
    pub weight_decay: f64,
    /// Factor on the gradient, as in [`AdamWStep`](super::AdamWStep).
    pub gradient_factor: f64,
}

/// The numbers of one Lion step on one parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LionStep {
    /// Learning rate of this step: how far each value moves.
    pub learning_rate: f64,
    /// Weight of the momentum in the direction of the step.
    pub beta1: f64,
    /// Decay of the momentum.
    pub beta2: f64,
    /// Decoupled weight decay; 0 for norms and biases.
    pub weight_decay: f64,
    /// Factor on the gradient, as in [`AdamWStep`](super::AdamWStep).
    pub gradient_factor: f64,
}
