//! Stochastic gradient descent with momentum (Sutskever et al. 2013).

use super::{Optimizer, StateSpec, StateTensor, StepMember, StepOptions, incomplete_state};
use crate::error::Result;
use candle_core::Tensor;
use tape::Stream;
use tape::update::{self, Member, sgd, sgd_together};

const MOMENTUM: f64 = 0.9;

/// SGD with momentum and decoupled groups of weight decay.
pub(super) struct Sgd;

fn rule(options: &StepOptions) -> update::Sgd {
    update::Sgd {
        learning_rate: options.learning_rate,
        momentum: MOMENTUM,
        weight_decay: options.weight_decay,
        gradient_factor: options.gradient_factor,
    }
}

impl Optimizer for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn rate_factor(&self) -> f64 {
        20.0
    }

    fn state(&self, parameter: &Tensor) -> Vec<StateSpec> {
        vec![StateSpec::like("momentum", parameter)]
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

    fn step_together(&self, members: &[StepMember], options: &StepOptions) -> Result<bool> {
        let mut all = Vec::with_capacity(members.len());
        for member in members {
            let [momentum] = member.state else {
                return Ok(false);
            };
            all.push(Member {
                parameter: member.parameter,
                first: &momentum.tensor,
                // The kernel of SGD does not read a second moment.
                second: &momentum.tensor,
                gradient: member.gradient,
                weight_decay: member.weight_decay,
            });
        }
        Ok(sgd_together(&all, rule(options))?)
    }
}
