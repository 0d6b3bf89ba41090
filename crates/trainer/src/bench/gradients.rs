//! How far a workload's gradients are from the same in f64 on the CPU, with the same weights on the same samples.

use super::case::Case;
use super::workload::Model;
use crate::error::Result;
use candle_core::{DType, Device};
use tape::Parameters;
use tape::inplace::to_f64;

/// Relative differences: the length of what differs over the length of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Distance {
    /// Of the summed loss.
    pub loss: f64,
    /// Of all gradients as one vector.
    pub all: f64,
    /// The largest of one parameter's gradient.
    pub largest: f64,
    /// Whose that is.
    pub name: String,
}

/// Sums of squares: of the difference, and of what was expected.
fn squares(found: &[f64], expected: &[f64]) -> (f64, f64) {
    let differ = found.iter().zip(expected).map(|(a, b)| (a - b) * (a - b));
    (differ.sum(), expected.iter().map(|b| b * b).sum())
}

/// The gradients of one piece of the whole batch on `device`, against those of the CPU in f64. Weights that are computed on in a half
/// precision are the same rounded numbers on both sides.
pub fn gradients_against_f64(case: Case, device: &Device) -> Result<Distance> {
    let (model, parameters) = case.workload.build(case.precision.master_dtype(), device)?;
    let parameters = match case.precision.is_half() {
        true => parameters.rounded(case.precision.dtype())?,
        false => parameters,
    };
    let (exact, mut whole) = case.workload.build(DType::F64, &Device::Cpu)?;
    for (i, parameter) in parameters.iter().enumerate() {
        let tensor = parameter.tensor.to_device(&Device::Cpu)?;
        whole.set(i, tensor.to_dtype(DType::F64)?)?;
    }
    let factor = case.precision.loss_factor(case.batch as u32);
    let gradients = |model: &Model, parameters: &Parameters, device: &Device, factor: f64| {
        let batch = case.workload.batch(case.batch);
        let (piece, _) = model.piece(parameters, &batch, device, (case.checkpointed, factor))?;
        Ok::<_, crate::error::TrainError>(piece)
    };
    let found = gradients(&model, &parameters, device, factor)?;
    let expected = gradients(&exact, &whole, &Device::Cpu, 1.0)?;
    let (mut differ, mut length, mut largest) = (0.0, 0.0, (0.0, String::new()));
    let each = found.gradients.iter().zip(&expected.gradients);
    for ((found, expected), parameter) in each.zip(whole.iter()) {
        let found: Vec<f64> = to_f64(found)?.iter().map(|v| v / factor).collect();
        let (of, over) = squares(&found, &to_f64(expected)?);
        let apart = (of / over.max(1e-300)).sqrt();
        if apart.is_nan() || apart > largest.0 {
            largest = (apart, parameter.name.clone());
        }
        differ += of;
        length += over;
    }
    Ok(Distance {
        loss: (found.loss - expected.loss).abs() / expected.loss.abs(),
        all: (differ / length.max(1e-300)).sqrt(),
        largest: largest.0,
        name: largest.1,
    })
}
