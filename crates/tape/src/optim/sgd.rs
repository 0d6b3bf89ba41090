//! SGD with momentum, without Nesterov: `b = momentum b + g + decay p`, `p = p - rate b`, in one
//! pass. State: one momentum buffer with the shape and type of the parameter.

use super::multi_tensor::{Member, sgd_together};
use super::step_rules::SgdStep;
use super::{CHUNK, Element, Optimizer, StateTensor, Step, StepMember, unexpected_state};
use crate::cpu::{Float, View, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use candle_core::Tensor;
use rayon::prelude::*;

/// The optimizer with its hyperparameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Decay of the momentum buffer.
    pub momentum: f64,
}

impl Default for Sgd {
    /// A momentum of 0.9.
    fn default() -> Self {
        Sgd { momentum: 0.9 }
    }
}

impl Sgd {
    fn numbers(&self, step: &Step) -> SgdStep {
        SgdStep {
            learning_rate: step.learning_rate,
            momentum: self.momentum,
            weight_decay: step.weight_decay,
            gradient_factor: step.gradient_factor,
        }
    }
}

impl Optimizer for Sgd {
    fn state(&self, parameter: &Tensor) -> Vec<StateTensor> {
        vec![StateTensor::like("momentum", parameter)]
    }

    fn step(
        &self,
        parameter: &mut Tensor,
        state: &mut [Tensor],
        gradient: &Tensor,
        step: &Step,
    ) -> Result<()> {
        let member = StepMember {
            parameter,
            state,
            gradient,
            weight_decay: step.weight_decay,
        };
        if self.step_all(&[member], step)? {
            return Ok(());
        }
        let [momentum] = state else {
            return Err(unexpected_state("sgd", parameter, state));
        };
        sgd(parameter, momentum, gradient, self.numbers(step))
    }

    fn step_all(&self, members: &[StepMember], step: &Step) -> Result<bool> {
        let members = members.iter().map(|member| match member.state {
            [momentum] => Some(Member {
                parameter: member.parameter,
                first: momentum,
                second: momentum,
                gradient: member.gradient,
                weight_decay: member.weight_decay,
            }),
            _ => None,
        });
        match members.collect::<Option<Vec<_>>>() {
            Some(members) => sgd_together(&members, self.numbers(step)),
            None => Ok(false),
        }
    }
}

/// One SGD step on a parameter with its momentum buffer.
pub fn sgd(
    parameter: &mut Tensor,
    momentum: &mut Tensor,
    gradient: &Tensor,
    rule: SgdStep,
) -> Result<()> {
    if !crate::cpu::is_fused(parameter) {
        let g = ((gradient * rule.gradient_factor)? + (&*parameter * rule.weight_decay)?)?;
        *momentum = ((&*momentum * rule.momentum)? + g)?;
        *parameter = (&*parameter - (&*momentum * rule.learning_rate)?)?;
        return Ok(());
    }
    let gradient = gradient.contiguous()?;
    with_float!("sgd", parameter, T => {
        let g = View::<T>::new("sgd", &gradient)?;
        let (decay, keep) = (T::from_constant(rule.weight_decay), T::from_constant(rule.momentum));
        let (rate, factor) = (T::from_constant(rule.learning_rate), T::from_constant(rule.gradient_factor));
        with_slice_mut(parameter, |p| with_slice_mut(momentum, |b| {
            let (p, b) = (<T as Element>::borrowed(p)?, <T as Element>::borrowed(b)?);
            p.par_chunks_mut(CHUNK).zip(b.par_chunks_mut(CHUNK)).zip(g.par_chunks(CHUNK)).for_each(|((p, b), g)| {
                for ((p, b), &g) in p.iter_mut().zip(b).zip(g) {
                    *b = keep * *b + g * factor + decay * *p;
                    *p -= rate * *b;
                }
            });
            Ok(())
        }))?;
        Ok(())
    })
}
