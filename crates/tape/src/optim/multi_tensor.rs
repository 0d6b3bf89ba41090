//! Optimizer steps of many parameters in a few launches on a GPU, seven tensors per launch, in
//! place.

use super::step_hyperparameters::{AdamWStep, SgdStep};
use crate::error::Result;
use crate::kernels::multi_tensor::{self, AdamNumbers, Moved};
use crate::kernels::{KernelGroup, run_on};
use candle_core::{DType, Tensor};

/// A parameter with its moments and its gradient.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// The parameter; written in place.
    pub parameter: &'a Tensor,
    /// First moment, or the momentum of SGD; written in place.
    pub first: &'a Tensor,
    /// Second moment; written in place by AdamW, ignored by SGD.
    pub second: &'a Tensor,
    /// The gradient.
    pub gradient: &'a Tensor,
    /// Weight decay of this parameter, instead of that of the step; 0 for norms and biases.
    pub weight_decay: f64,
}

impl Member<'_> {
    /// Whether the kernels of this group compute a step of it.
    fn fits(&self, group: KernelGroup) -> bool {
        let all = [self.parameter, self.first, self.second, self.gradient];
        let fits = |t: &&Tensor| t.dtype() == DType::F32 && t.is_contiguous() && run_on(group, t);
        all.iter().all(fits)
    }

    fn moved(&self, keep: f64) -> Moved<'_> {
        Moved {
            written: [self.parameter, self.first, self.second],
            gradient: self.gradient,
            keep,
        }
    }
}

/// One AdamW step of all members. Returns false and changes nothing if there is no kernel for it.
pub fn adamw_together(members: &[Member], rule: AdamWStep) -> Result<bool> {
    if !members.iter().all(|m| m.fits(KernelGroup::AdamW)) {
        return Ok(false);
    }
    let (correct1, correct2) = rule.corrections();
    let numbers = AdamNumbers {
        rate: rule.learning_rate / correct1,
        betas: (rule.beta1, rule.beta2),
        factor: rule.gradient_factor,
        root: 1.0 / correct2,
        epsilon: rule.epsilon,
    };
    let keep = |m: &Member| 1.0 - rule.learning_rate * m.weight_decay;
    let all: Vec<_> = members.iter().map(|m| m.moved(keep(m))).collect();
    multi_tensor::adamw(&all, &numbers)?;
    Ok(true)
}

/// One SGD step of all members, like [`adamw_together`].
pub fn sgd_together(members: &[Member], rule: SgdStep) -> Result<bool> {
    if !members.iter().all(|m| m.fits(KernelGroup::Sgd)) {
        return Ok(false);
    }
    let all: Vec<_> = members.iter().map(|m| m.moved(m.weight_decay)).collect();
    multi_tensor::sgd(
        &all,
        rule.learning_rate,
        rule.momentum,
        rule.gradient_factor,
    )?;
    Ok(true)
}
