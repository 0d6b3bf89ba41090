//! AdamW with moments of one byte per value (Dettmers et al. 2022).

use super::adamw::{AdamW, rule};
use super::{Optimizer, StateSpec, StateTensor, StepOptions};
use crate::error::Result;
use candle_core::{DType, Tensor};
use tape::Rng;
use tape::optim::{BLOCK, ByteMoment, Member, adamw8bit};

/// Parameters with fewer values keep moments in full: they take little memory and are the most
/// sensitive ones.
const MIN_VALUES: usize = 4096;

/// AdamW with 8-bit moments of large parameters.
pub(super) struct AdamW8bit;

impl Optimizer for AdamW8bit {
    fn state(&self, parameter: &Tensor) -> Vec<StateSpec> {
        let count = parameter.elem_count();
        if count < MIN_VALUES {
            return AdamW.state(parameter);
        }
        let codes = |name| StateSpec {
            name,
            dtype: DType::U8,
            dims: parameter.dims().to_vec(),
        };
        let scales = |name| StateSpec {
            name,
            dtype: DType::F32,
            dims: vec![count.div_ceil(BLOCK)],
        };
        vec![
            codes("first_moment.codes"),
            scales("first_moment.scales"),
            codes("second_moment.codes"),
            scales("second_moment.scales"),
        ]
    }

    /// There is no kernel for 8-bit moments.
    fn fused_state<'a>(&self, state: &'a [StateTensor]) -> Option<[&'a Tensor; 2]> {
        AdamW.fused_state(state)
    }

    fn step_fused(&self, members: &[Member], options: &StepOptions) -> Result<bool> {
        AdamW.step_fused(members, options)
    }

    fn step(
        &self,
        parameter: &mut Tensor,
        state: &mut [StateTensor],
        gradient: &Tensor,
        options: &StepOptions,
        noise: Rng,
    ) -> Result<()> {
        let [codes1, scales1, codes2, scales2] = state else {
            return AdamW.step(parameter, state, gradient, options, noise);
        };
        let moment = |codes: &StateTensor, scales: &StateTensor| ByteMoment {
            codes: codes.tensor.clone(),
            scales: scales.tensor.clone(),
        };
        let (mut first, mut second) = (moment(codes1, scales1), moment(codes2, scales2));
        let rule = rule(options);
        adamw8bit(parameter, &mut first, &mut second, gradient, rule, noise)?;
        (codes1.tensor, scales1.tensor) = (first.codes, first.scales);
        (codes2.tensor, scales2.tensor) = (second.codes, second.scales);
        Ok(())
    }
}
