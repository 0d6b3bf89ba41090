//! Lion (Chen et al. 2023, arXiv 2302.06675): `p = p - rate (sign(b1 m + (1 - b1) g) + decay p)`,
//! then `m = b2 m + (1 - b2) g`.
//!
//! State: a momentum with the shape and type of the parameter.

use super::step_hyperparameters::LionStep;
use super::update_elements::{StepElement, update_elements};
use crate::error::Result;
use candle_core::Tensor;

/// One Lion step on a parameter with its momentum.
pub fn lion(
    parameter: &mut Tensor,
    momentum: &mut Tensor,
    gradient: &Tensor,
    rule: LionStep,
) -> Result<()> {
    let of_element = |old: StepElement, gradient: f64| step_element(&rule, old, gradient);
    if !update_elements(parameter, momentum, gradient, of_element)? {
        (*parameter, *momentum) = step_tensors(&rule, parameter, momentum, gradient)?;
    }
    Ok(())
}

/// One step of one element.
#[inline(always)]
fn step_element(rule: &LionStep, old: StepElement, gradient: f64) -> StepElement {
    let gradient = gradient * rule.gradient_factor;
    let blended = rule.beta1 * old.state + (1.0 - rule.beta1) * gradient;
    let direction = f64::from(i8::from(blended > 0.0) - i8::from(blended < 0.0));
    let keep = 1.0 - rule.learning_rate * rule.weight_decay;
    StepElement {
        parameter: keep * old.parameter - rule.learning_rate * direction,
        state: rule.beta2 * old.state + (1.0 - rule.beta2) * gradient,
    }
}

/// The new parameter and momentum on a device without [`update_elements`].
fn step_tensors(
    rule: &LionStep,
    parameter: &Tensor,
    momentum: &Tensor,
    gradient: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let gradient = (gradient * rule.gradient_factor)?;
    let blended = ((momentum * rule.beta1)? + (&gradient * (1.0 - rule.beta1))?)?;
    let direction = (blended.gt(0.0)?.to_dtype(blended.dtype())?
        - blended.lt(0.0)?.to_dtype(blended.dtype())?)?;
    let decayed = (parameter * (1.0 - rule.learning_rate * rule.weight_decay))?;
    Ok((
        (decayed - (direction * rule.learning_rate)?)?,
        ((momentum * rule.beta2)? + (gradient * (1.0 - rule.beta2))?)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inplace::to_f64;
    use crate::rng::Rng;
    use candle_core::{DType, Device};

    const RULE: LionStep = LionStep {
        learning_rate: 0.125,
        beta1: 0.9,
        beta2: 0.99,
        weight_decay: 0.5,
        gradient_factor: 2.0,
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
            let [mut parameter, mut momentum, gradient] = [1, 2, 3].map(|site| drawn(site, dtype));
            let expected = step_tensors(&RULE, &parameter, &momentum, &gradient);
            let expected = expected.expect("tensors that fit");
            lion(&mut parameter, &mut momentum, &gradient, RULE).expect("tensors that fit");
            for (found, expected) in [(&parameter, expected.0), (&momentum, expected.1)] {
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
        let new = step_element(&RULE, old, 0.0);
        assert_eq!((new.parameter, new.state), (0.9375, 0.0));
    }
}
