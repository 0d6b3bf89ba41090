//! AdamW (Loshchilov and Hutter 2019).

use super::{Optimizer, StateSpec, StateTensor, StepOptions, incomplete_state};
use crate::error::Result;
use candle_core::Tensor;
use tape::Rng;
use tape::optim::{AdamWStep, Member, adamw, adamw_together};

/// Decay of the moments, and epsilon.
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;

/// AdamW with moments of the parameter's type.
pub(super) struct AdamW;

/// The update rule of a step.
pub(super) fn rule(options: &StepOptions) -> AdamWStep {
    AdamWStep {
        learning_rate: options.learning_rate,
        beta1: BETAS.0,
        beta2: BETAS.1,
        epsilon: EPSILON,
        weight_decay: options.weight_decay,
        step: options.step,
        gradient_factor: options.gradient_factor,
    }
}

impl Optimizer for AdamW {
    fn has_8bit_variant(&self) -> bool {
        true
    }

    fn state(&self, parameter: &Tensor) -> Vec<StateSpec> {
        let names = ["first_moment", "second_moment"];
        names.map(|name| StateSpec::like(name, parameter)).into()
    }

    fn fused_state<'a>(&self, state: &'a [StateTensor]) -> Option<[&'a Tensor; 2]> {
        match state {
            [first, second] => Some([&first.tensor, &second.tensor]),
            _ => None,
        }
    }

    fn step_fused(&self, members: &[Member], options: &StepOptions) -> Result<bool> {
        Ok(adamw_together(members, rule(options))?)
    }

    fn step(
        &self,
        parameter: &mut Tensor,
        state: &mut [StateTensor],
        gradient: &Tensor,
        options: &StepOptions,
        _noise: Rng,
    ) -> Result<()> {
        let [first, second] = state else {
            return Err(incomplete_state());
        };
        let (first, second) = (&mut first.tensor, &mut second.tensor);
        Ok(adamw(parameter, first, second, gradient, rule(options))?)
    }
}
