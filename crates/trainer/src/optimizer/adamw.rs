//! AdamW (Loshchilov and Hutter 2019).

use super::{Optimizer, StateSpec, StateTensor, StepMember, StepOptions, incomplete_state};
use crate::error::Result;
use candle_core::Tensor;
use tape::Stream;
use tape::update::{self, Member, adamw, adamw_together};

/// Decay of the moments, and epsilon.
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;

/// AdamW with moments of the parameter's type.
pub(super) struct AdamW;

/// The update rule of a step.
pub(super) fn rule(options: &StepOptions) -> update::AdamW {
    update::AdamW {
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
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn has_8bit_variant(&self) -> bool {
        true
    }

    fn state(&self, parameter: &Tensor) -> Vec<StateSpec> {
        let names = ["first_moment", "second_moment"];
        names.map(|name| StateSpec::like(name, parameter)).into()
    }

    fn step(
        &self,
        parameter: &mut Tensor,
        state: &mut [StateTensor],
        gradient: &Tensor,
        options: &StepOptions,
        _noise: Stream,
    ) -> Result<()> {
        let member = StepMember {
            parameter,
            state,
            gradient,
            weight_decay: options.weight_decay,
        };
        if self.step_together(&[member], options)? {
            return Ok(());
        }
        let [first, second] = state else {
            return Err(incomplete_state());
        };
        let (first, second) = (&mut first.tensor, &mut second.tensor);
        Ok(adamw(parameter, first, second, gradient, rule(options))?)
    }

    fn step_together(&self, members: &[StepMember], options: &StepOptions) -> Result<bool> {
        let mut all = Vec::with_capacity(members.len());
        for member in members {
            let [first, second] = member.state else {
                return Ok(false);
            };
            all.push(Member {
                parameter: member.parameter,
                first: &first.tensor,
                second: &second.tensor,
                gradient: member.gradient,
                weight_decay: member.weight_decay,
            });
        }
        Ok(adamw_together(&all, rule(options))?)
    }
}
