//! Lion (Chen et al. 2023, arXiv 2302.06675): `p = p - rate (sign(b1 m + (1 - b1) g) + decay p)`,
//! then `m = b2 m + (1 - b2) g`. Every parameter moves by the same amount per step, so it takes a
//! lower learning rate than AdamW and a higher weight decay.

use super::{Optimizer, StateSpec, StateTensor, StepOptions, incomplete_state};
use crate::error::Result;
use candle_core::Tensor;
use tape::Rng;
use tape::optim::{Member, StepElement, update_elements};

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
        let [StateTensor { tensor, .. }] = state else {
            return Err(incomplete_state());
        };
        let rule = |old: StepElement, gradient: f64| step_element(options, old, gradient);
        if !update_elements(parameter, tensor, gradient, rule)? {
            (*parameter, *tensor) = step_tensors(options, parameter, tensor, gradient)?;
        }
        Ok(())
    }
}

/// One step of one element.
#[inline(always)]
fn step_element(options: &StepOptions, old: StepElement, gradient: f64) -> StepElement {
    let gradient = gradient * options.gradient_factor;
    let blended = BETAS.0 * old.state + (1.0 - BETAS.0) * gradient;
    let direction = f64::from(i8::from(blended > 0.0) - i8::from(blended < 0.0));
    let keep = 1.0 - options.learning_rate * options.weight_decay;
    StepElement {
        parameter: keep * old.parameter - options.learning_rate * direction,
        state: BETAS.1 * old.state + (1.0 - BETAS.1) * gradient,
    }
}

/// The new parameter and momentum on a device without [`update_elements`].
fn step_tensors(
    options: &StepOptions,
    parameter: &Tensor,
    momentum: &Tensor,
    gradient: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let gradient = (gradient * options.gradient_factor)?;
    let blended = ((momentum * BETAS.0)? + (&gradient * (1.0 - BETAS.0))?)?;
    let direction = (blended.gt(0.0)?.to_dtype(blended.dtype())?
        - blended.lt(0.0)?.to_dtype(blended.dtype())?)?;
    let decayed = (parameter * (1.0 - options.learning_rate * options.weight_decay))?;
    Ok((
        (decayed - (direction * options.learning_rate)?)?,
        ((momentum * BETAS.1)? + (gradient * (1.0 - BETAS.1))?)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};
    use tape::inplace::to_f64;

    const OPTIONS: StepOptions = StepOptions {
        learning_rate: 0.125,
        weight_decay: 0.5,
        gradient_factor: 2.0,
        step: 1,
    };

    fn drawn(site: u64, dtype: DType) -> Tensor {
        let stream = Rng::new(3).at(site);
        let values: Vec<f64> = (0..1000).map(|i| stream.normal(i)).collect();
        let tensor = Tensor::from_vec(values, 1000, &Device::Cpu);
        tensor.and_then(|t| t.to_dtype(dtype)).expect("a tensor")
    }

    #[test]
    fn both_forms_of_the_step_agree() {
        for (dtype, bound) in [(DType::F32, 1e-6), (DType::F64, 1e-14)] {
            let [mut parameter, tensor, gradient] = [1, 2, 3].map(|site| drawn(site, dtype));
            let expected = step_tensors(&OPTIONS, &parameter, &tensor, &gradient);
            let expected = expected.expect("tensors that fit");
            let mut state = [StateTensor {
                name: "momentum",
                tensor,
            }];
            let done = Lion.step(&mut parameter, &mut state, &gradient, &OPTIONS, Rng::new(0));
            done.expect("tensors that fit");
            for (found, expected) in [(&parameter, expected.0), (&state[0].tensor, expected.1)] {
                let apart = (found - expected).and_then(|d| d.abs()?.max_all());
                let apart = to_f64(&apart.expect("equal shapes")).expect("a number")[0];
                assert!(apart <= bound, "{dtype:?}: {apart:e}");
            }
        }
    }

    #[test]
    fn a_parameter_without_gradient_only_decays() {
        let old = StepElement {
            parameter: 1.0,
            state: 0.0,
        };
        let new = step_element(&OPTIONS, old, 0.0);
        assert_eq!((new.parameter, new.state), (0.9375, 0.0));
    }
}
