//! Stochastic gradient descent with momentum (Sutskever et al. 2013).

use super::{Optimizer, StateSpec, StateTensor, StepOptions, incomplete_state};
use crate::error::Result;
use candle_core::Tensor;
use tape::Rng;
use tape::optim::{Member, SgdStep, sgd, sgd_together};

const MOMENTUM: f64 = 0.9;

/// SGD with momentum and decoupled groups of weight decay.
pub(super) struct Sgd;

fn rule(options: &StepOptions) -> SgdStep {
    SgdStep {
        learning_rate: options.learning_rate,
        momentum: MOMENTUM,
        weight_decay: options.weight_decay,
        gradient_factor: options.gradient_factor,
    }
}

impl Optimizer for Sgd {
    fn rate_factor(&self) -> f64 {
        20.0
    }

    fn state(&self, parameter: &Tensor) -> Vec<StateSpec> {
        vec![StateSpec::like("momentum", parameter)]
    }

    /// The kernel of SGD does not read a second tensor.
    fn fused_state<'a>(&self, state: &'a [StateTensor]) -> Option<[&'a Tensor; 2]> {
        match state {
            [momentum] => Some([&momentum.tensor, &momentum.tensor]),
            _ => None,
        }
    }

    fn step_fused(&self, members: &[Member], options: &StepOptions) -> Result<bool> {
        Ok(sgd_together(members, rule(options))?)
    }

    fn step(
        &self,
        parameter: &mut Tensor,
        state: &mut [StateTensor],
        gradient: &Tensor,
        options: &StepOptions,
        _noise: Rng,
    ) -> Result<()> {
        let [momentum] = state else {
            return Err(incomplete_state());
        };
        Ok(sgd(
            parameter,
            &mut momentum.tensor,
            gradient,
            rule(options),
        )?)
    }
}
