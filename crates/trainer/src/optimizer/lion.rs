//! Lion (Chen et al. 2023, arXiv 2302.06675). Every parameter moves by the same amount per step, so
//! it takes a lower learning rate than AdamW and a higher weight decay.

use super::{Optimizer, StateSpec, StateTensor, StepOptions, incomplete_state};
use crate::error::Result;
use candle_core::Tensor;
use tape::Rng;
use tape::optim::{LionStep, Member, lion};

/// Weight of the momentum in the direction of a step, and decay of the momentum.
const BETAS: (f64, f64) = (0.9, 0.99);

/// Lion with a momentum of the parameter's type.
pub(super) struct Lion;

impl Optimizer for Lion {
    /// The paper suggests a third to a tenth of AdamW's.
    fn rate_factor(&self) -> f64 {
        0.2
    }

    fn state(&self, parameter: &Tensor) -> Vec<StateSpec> {
        vec![StateSpec::like("momentum", parameter)]
    }

    /// There is no GPU kernel for it.
    fn fused_state<'a>(&self, _state: &'a [StateTensor]) -> Option<[&'a Tensor; 2]> {
        None
    }

    fn step_fused(&self, _members: &[Member], _options: &StepOptions) -> Result<bool> {
        Ok(false)
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
        let rule = LionStep {
            learning_rate: options.learning_rate,
            beta1: BETAS.0,
            beta2: BETAS.1,
            weight_decay: options.weight_decay,
            gradient_factor: options.gradient_factor,
        };
        Ok(lion(parameter, &mut momentum.tensor, gradient, rule)?)
    }
}
