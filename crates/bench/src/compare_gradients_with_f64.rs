//! Compares a workload's gradients with those of the CPU in f64, from the same weights and samples.
//!
//! A network with kinks (ReLU, max-pooling) has a different gradient on each side of a kink, and
//! rounding may put a value on the other side. So f64 is run twice: on its own sides of the kinks,
//! and on the sides that the judged run took.

use crate::model::{ForwardOptions, Model};
use crate::step_benchmark::Case;
use candle_core::{DType, Device};
use tape::device::{to_host, with_autorelease_pool};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, KinkDivergence, KinkLog, Parameters, Tape};
use trainer::internals::MicroBatchResult;
use trainer::{Precision, Result};

/// How far the gradients of one micro-batch are from f64.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientComparison {
    /// From f64 on its own sides of the kinks.
    pub plain: RelativeDifference,
    /// From f64 on the judged run's sides, and where the two runs took different sides. `None` if
    /// the network has no kinks.
    pub same_kinks: Option<(RelativeDifference, KinkDivergence)>,
}

/// Norm of the difference over the norm of the expected value.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeDifference {
    /// Of the summed loss.
    pub loss: f64,
    /// Of all gradients as one vector.
    pub all: f64,
    /// Largest of any one parameter's gradient.
    pub largest: f64,
    /// The parameter with the largest difference.
    pub name: String,
}

/// A value this close to its kink may have crossed it by rounding, in units in the last place at
/// the scale of its operation's values. f32 rounds each of the thousands of terms of a sum.
const KINK_ULPS: f64 = 64.0;
/// The limit for the half precisions, which round only the stored value.
const HALF_KINK_ULPS: f64 = 16.0;

/// Largest distance from its kink, over the scale of its operation's values, at which a value may
/// be on another side than in f64 because of rounding.
pub fn kink_tolerance(precision: Precision) -> f64 {
    let ulps = if precision.is_half() {
        HALF_KINK_ULPS
    } else {
        KINK_ULPS
    };
    ulps * precision.epsilon()
}

impl GradientComparison {
    /// The kinks at which the runs took different sides, if rounding in `precision` does not
    /// explain the farthest one. In that case the comparison on the same sides would hide a fault.
    pub fn unexplained(&self, precision: Precision) -> Option<KinkDivergence> {
        let parting = self.same_kinks.as_ref().map(|(_, parting)| *parting);
        parting.filter(|parting| parting.farthest > kink_tolerance(precision))
    }
}

/// Compares the gradients of the whole batch of `case` on `device` with those of the CPU in f64.
/// Weights in a half precision are the same rounded numbers on both sides.
///
/// # Errors
/// The device has too little memory or fails.
pub fn gradients_against_f64(case: Case, device: &Device) -> Result<GradientComparison> {
    let judged = Run::new(case, device)?;
    judged.compare(&judged.in_f64()?)
}

/// A network in one precision on one device.
struct Run<'a> {
    case: Case,
    model: Model,
    parameters: Parameters,
    device: &'a Device,
    loss_factor: f64,
}

impl<'a> Run<'a> {
    fn new(case: Case, device: &'a Device) -> Result<Self> {
        let (model, parameters) = case.workload.build(case.precision.master_dtype(), device)?;
        Ok(Run {
            case,
            model,
            parameters: if case.precision.is_half() {
                parameters.rounded(case.precision.dtype())?
            } else {
                parameters
            },
            device,
            loss_factor: case.precision.loss_factor(case.batch as u32),
        })
    }

    /// The same network and weights in f64 on the CPU.
    fn in_f64(&self) -> Result<Run<'static>> {
        let (model, mut parameters) = self.case.workload.build(DType::F64, &Device::Cpu)?;
        for (i, parameter) in self.parameters.iter().enumerate() {
            let tensor = to_host(&parameter.tensor)?;
            parameters.set(i, tensor.to_dtype(DType::F64)?)?;
        }
        Ok(Run {
            case: self.case,
            model,
            parameters,
            device: &Device::Cpu,
            loss_factor: 1.0,
        })
    }

    /// Compares this run with `exact`, the same network in f64.
    fn compare(&self, exact: &Run) -> Result<GradientComparison> {
        let kinks = KinkLog::default();
        let found = with_autorelease_pool(|| self.gradients(|tape| tape.recording_kinks(&kinks)))?;
        let expected = exact.gradients(|tape| tape)?;
        let same_kinks = if kinks.is_empty() {
            None
        } else {
            let expected = exact.gradients(|tape| tape.following_kinks(&kinks))?;
            Some((self.difference(&found, &expected)?, kinks.divergence()))
        };
        Ok(GradientComparison {
            plain: self.difference(&found, &expected)?,
            same_kinks,
        })
    }

    /// Runs forward and backward over the whole batch on a tape that `prepare` may change.
    fn gradients(&self, prepare: impl FnOnce(Tape) -> Tape) -> Result<MicroBatchResult> {
        let tape = Tape::record(&self.parameters, Cancel::default(), Kernels::Fused);
        let batch = self.case.workload.batch(self.case.batch);
        let options = ForwardOptions {
            checkpointed: self.case.checkpointed,
            loss_factor: self.loss_factor,
        };
        let tape = prepare(tape);
        let micro_batch =
            (self.model).gradients_on(tape, &self.parameters, &batch, self.device, options)?;
        Ok(micro_batch.sums)
    }

    /// The difference of `found`, gradients of this run, from `expected` in f64.
    fn difference(
        &self,
        found: &MicroBatchResult,
        expected: &MicroBatchResult,
    ) -> Result<RelativeDifference> {
        let (mut differ, mut length) = (0.0, 0.0);
        let (mut largest, mut largest_at) = (0.0, 0);
        let pairs = found.gradients.iter().zip(&expected.gradients);
        for (i, (found, expected)) in pairs.enumerate() {
            let pairs = to_f64(found)?.into_iter().zip(to_f64(expected)?);
            let (of, over) = pairs.fold((0.0, 0.0), |(of, over), (a, b)| {
                (of + (a / self.loss_factor - b).powi(2), over + b * b)
            });
            let relative = relative(of, over);
            if relative.is_nan() || relative > largest {
                (largest, largest_at) = (relative, i);
            }
            differ += of;
            length += over;
        }
        let name = self.parameters.iter().nth(largest_at);
        Ok(RelativeDifference {
            loss: (found.loss - expected.loss).abs() / expected.loss.abs(),
            all: relative(differ, length),
            largest,
            name: name.map_or_else(String::new, |parameter| parameter.name.clone()),
        })
    }
}

/// The quotient of two norms, from their squares.
fn relative(of: f64, over: f64) -> f64 {
    (of / over.max(1e-300)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use candle_core::Tensor;
    use tape::Rng;

    /// Copies the parameters and changes every value by at most the fraction `most`.
    fn perturbed(parameters: &Parameters, stream: Rng, most: f64) -> Result<Parameters> {
        let mut near = parameters.clone();
        for (i, parameter) in parameters.iter().enumerate() {
            let stream = stream.at(i as u64);
            let mut values = to_f64(&parameter.tensor)?;
            for (place, value) in values.iter_mut().enumerate() {
                *value *= 1.0 + most * (2.0 * stream.uniform(place as u64) - 1.0);
            }
            let shape = parameter.tensor.shape();
            let moved = Tensor::from_vec(values, shape, &Device::Cpu)?;
            near.set(i, moved.to_dtype(parameter.tensor.dtype())?)?;
        }
        Ok(near)
    }

    /// Compares a ResNet whose weights are changed by at most the fraction `most` with the
    /// unchanged one in f64.
    fn comparison_with_perturbed_weights(most: f64) -> GradientComparison {
        let case = Case {
            workload: Workload::ResNet18,
            batch: 1,
            micro: 1,
            checkpointed: 0,
            steps: 1,
            precision: Precision::F32,
            moments_in_file: false,
        };
        let mut judged = Run::new(case, &Device::Cpu).expect("it is built");
        let exact = judged.in_f64().expect("it is built");
        let near = perturbed(&judged.parameters, Rng::new(0), most).expect("the shapes agree");
        judged.parameters = near;
        judged.compare(&exact).expect("the networks agree")
    }

    #[test]
    fn kinks_that_rounding_does_not_explain_are_reported() {
        let (sound, faulty) = (
            comparison_with_perturbed_weights(0.0),
            comparison_with_perturbed_weights(0.05),
        );
        assert_eq!(sound.unexplained(Precision::F32), None);
        let parting = faulty.unexplained(Precision::F32).expect("a fault");
        assert!(parting.farthest > 1e-3, "{parting:?}");
        // It is far more than rounding in bf16, too.
        assert!(faulty.unexplained(Precision::Bf16).is_some(), "{parting:?}");
    }
}
