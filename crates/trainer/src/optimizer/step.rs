//! The numbers of one step, and the step itself: of many parameters in a few launches where a GPU's kernels run, or of one with
//! its moments. Refuses to know where moments are kept.

use super::{MOMENTUM, Moments};
use crate::error::Result;
use candle_core::Tensor;
use tape::Rng;
use tape::optim::{
    AdamWStep, Member, SgdStep, adamw, adamw_together, adamw8bit, sgd, sgd_together,
};

/// The numbers of one step.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// AdamW's; SGD takes the rate and the factor of them.
    pub(super) adam: AdamWStep,
}

impl Step {
    /// The same step of parameters with another decay.
    pub(super) fn decaying(self, weight_decay: f64) -> Self {
        let adam = AdamWStep {
            weight_decay,
            ..self.adam
        };
        Step { adam }
    }

    fn sgd(&self) -> SgdStep {
        SgdStep {
            learning_rate: self.adam.learning_rate,
            momentum: MOMENTUM,
            weight_decay: self.adam.weight_decay,
            gradient_factor: self.adam.gradient_factor,
        }
    }

    /// Steps all members, each with its own decay. False, and nothing done, where no kernel of a GPU runs. `momentum`: SGD's.
    pub(super) fn together(&self, members: &[Member], momentum: bool) -> Result<bool> {
        Ok(match momentum {
            true => sgd_together(members, self.sgd())?,
            false => adamw_together(members, self.adam)?,
        })
    }

    /// Steps one parameter. On a GPU by the kernel that steps many: the same bits. `noise` rounds moments in bytes.
    pub(super) fn alone(
        &self,
        parameter: &mut Tensor,
        moments: &mut Moments,
        gradient: &Tensor,
        noise: Rng,
    ) -> Result<()> {
        if let Some((first, second)) = moments.in_full() {
            let momentum = matches!(moments, Moments::Momentum(_));
            let member = Member {
                parameter,
                first,
                second,
                gradient,
                weight_decay: self.adam.weight_decay,
            };
            if self.together(&[member], momentum)? {
                return Ok(());
            }
        }
        match moments {
            Moments::Full(first, second) => adamw(parameter, first, second, gradient, self.adam)?,
            Moments::Bytes(first, second) => {
                adamw8bit(parameter, first, second, gradient, self.adam, noise)?;
            }
            Moments::Momentum(momentum) => sgd(parameter, momentum, gradient, self.sgd())?,
        }
        Ok(())
    }
}
