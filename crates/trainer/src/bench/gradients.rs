//! How far a workload's gradients are from the same in f64 on the CPU, with the same weights on the same samples: each on its own
//! branches, and f64 on the branches of the run that it judges.

use super::case::Case;
use super::workload::Model;
use crate::error::Result;
use crate::precision::Precision;
use crate::task::TrainedPiece;
use candle_core::{DType, Device};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, KinkDivergence, KinkLog, Parameters, Tape};

/// What was found of one piece.
#[derive(Debug, Clone, PartialEq)]
pub struct Distance {
    /// From f64 on its own branches.
    pub plain: Apart,
    /// From f64 on the branches of the run that is judged, and where those are not its own. `None` where the network has no kinks.
    pub along: Option<(Apart, KinkDivergence)>,
}

/// Relative differences: the length of what differs over the length of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Apart {
    /// Of the summed loss.
    pub loss: f64,
    /// Of all gradients as one vector.
    pub all: f64,
    /// The largest of one parameter's gradient.
    pub largest: f64,
    /// Whose that is.
    pub name: String,
}

/// What goes another way within so many units in the last place, at the scale of its operation's values, went there by rounding: f32
/// rounds each of the thousands of terms of a sum, a half what is stored.
const NEAR_ULPS: f64 = 64.0;
/// The same of halves.
const NEAR_ULPS_OF_HALVES: f64 = 16.0;

impl Precision {
    /// How far from its kink, over the scale of its operation's values, a value may be that goes another way than in f64.
    pub fn near_a_kink(self) -> f64 {
        let ulps = match self.is_half() {
            true => NEAR_ULPS_OF_HALVES,
            false => NEAR_ULPS,
        };
        ulps * self.epsilon()
    }
}

impl Distance {
    /// The branches, where rounding in `precision` does not explain the farthest that went another way: f64 on the same ones would
    /// hide a fault.
    pub fn unexplained(&self, precision: Precision) -> Option<KinkDivergence> {
        let parting = self.along.as_ref().map(|(_, parting)| *parting);
        parting.filter(|parting| parting.farthest > precision.near_a_kink())
    }
}

/// A network in one precision on one device.
struct Run<'a> {
    case: Case,
    model: Model,
    parameters: Parameters,
    device: &'a Device,
    loss_factor: f64,
}

impl Run<'_> {
    /// Forward and backward over the whole batch.
    fn piece(
        &self,
        parameters: &Parameters,
        course: impl FnOnce(Tape) -> Tape,
    ) -> Result<TrainedPiece> {
        let tape = course(Tape::record(parameters, Cancel::default(), Kernels::Fused));
        let batch = self.case.workload.batch(self.case.batch);
        let how = (self.case.checkpointed, self.loss_factor);
        let (piece, _) = self
            .model
            .piece_on(tape, parameters, &batch, self.device, how)?;
        Ok(piece)
    }

    /// `found`, a piece of this run, from `expected` in f64.
    fn apart(&self, found: &TrainedPiece, expected: &TrainedPiece) -> Result<Apart> {
        let (mut differ, mut length, mut largest) = (0.0, 0.0, (0.0, 0));
        let pairs = found.gradients.iter().zip(&expected.gradients);
        for (i, (found, expected)) in pairs.enumerate() {
            let pairs = to_f64(found)?.into_iter().zip(to_f64(expected)?);
            let (of, over) = pairs.fold((0.0, 0.0), |(of, over), (a, b)| {
                (of + (a / self.loss_factor - b).powi(2), over + b * b)
            });
            let apart = relative(of, over);
            if apart.is_nan() || apart > largest.0 {
                largest = (apart, i);
            }
            differ += of;
            length += over;
        }
        let name = self.parameters.iter().nth(largest.1);
        Ok(Apart {
            loss: (found.loss - expected.loss).abs() / expected.loss.abs(),
            all: relative(differ, length),
            largest: largest.0,
            name: name.map_or_else(String::new, |parameter| parameter.name.clone()),
        })
    }
}

/// A length over another, of their squares.
fn relative(of: f64, over: f64) -> f64 {
    (of / over.max(1e-300)).sqrt()
}

/// The gradients of one piece of the whole batch on `device`, against those of the CPU in f64. Weights that are computed on in a half
/// precision are the same rounded numbers on both sides.
pub fn gradients_against_f64(case: Case, device: &Device) -> Result<Distance> {
    let judged = judged(case, device)?;
    judged.against(&judged.in_f64()?)
}

/// The run that is judged.
fn judged(case: Case, device: &Device) -> Result<Run<'_>> {
    let (model, parameters) = case.workload.build(case.precision.master_dtype(), device)?;
    Ok(Run {
        case,
        model,
        parameters: match case.precision.is_half() {
            true => parameters.rounded(case.precision.dtype())?,
            false => parameters,
        },
        device,
        loss_factor: case.precision.loss_factor(case.batch as u32),
    })
}

impl Run<'_> {
    /// This run against `exact`, its like in f64.
    fn against(&self, exact: &Run) -> Result<Distance> {
        let branches = KinkLog::default();
        let found = self.piece(&self.parameters, |tape| tape.recording_kinks(&branches))?;
        let expected = exact.piece(&exact.parameters, |tape| tape)?;
        let along = match branches.is_empty() {
            true => None,
            false => {
                let along =
                    exact.piece(&exact.parameters, |tape| tape.following_kinks(&branches))?;
                Some((self.apart(&found, &along)?, branches.divergence()))
            }
        };
        Ok(Distance {
            plain: self.apart(&found, &expected)?,
            along,
        })
    }

    /// The same network and weights in f64 on the CPU.
    fn in_f64(&self) -> Result<Run<'static>> {
        let (model, mut parameters) = self.case.workload.build(DType::F64, &Device::Cpu)?;
        for (i, parameter) in self.parameters.iter().enumerate() {
            let tensor = parameter.tensor.to_device(&Device::Cpu)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Workload;
    use candle_core::Tensor;
    use tape::Rng;

    /// The same parameters, every number moved by at most `most` of itself.
    fn nudged(parameters: &Parameters, stream: Rng, most: f64) -> Result<Parameters> {
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

    /// A ResNet of one sample, and one whose weights are moved by at most `moved` of themselves, judged by f64 on the same branches.
    fn of_moved_weights(moved: f64) -> Distance {
        let case = Case {
            workload: Workload::ResNet18,
            batch: 1,
            micro: 1,
            checkpointed: 0,
            steps: 1,
            precision: Precision::F32,
            moments_in_file: false,
        };
        let mut judged = judged(case, &Device::Cpu).expect("a network");
        let whole = judged.in_f64().expect("a network");
        let near = nudged(&judged.parameters, Rng::new(0), moved).expect("the same shapes");
        judged.parameters = near;
        judged.against(&whole).expect("the same network")
    }

    #[test]
    fn what_rounding_does_not_explain_is_refused() {
        let (sound, faulty) = (of_moved_weights(0.0), of_moved_weights(0.05));
        assert_eq!(sound.unexplained(Precision::F32), None);
        let parting = faulty.unexplained(Precision::F32).expect("a fault");
        assert!(parting.farthest > 1e-3, "{parting:?}");
        // In bf16 it would still be far more than rounding.
        assert!(faulty.unexplained(Precision::Bf16).is_some(), "{parting:?}");
    }
}
