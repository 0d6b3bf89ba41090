//! How far a workload's gradients are from the same in f64 on the CPU, with the same weights on the same samples.

use super::case::Case;
use super::workload::Model;
use crate::error::{Result, TrainError};
use candle_core::{DType, Device, Tensor};
use tape::inplace::to_f64;
use tape::{Parameters, Stream};

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
    /// Of all gradients, both in f64: at most, between these weights and weights moved in the last places of the precision. Where a
    /// network has kinks (ReLU, the largest of a window) no gradient in that precision can be nearer than this. `None` where not asked.
    pub own: Option<f64>,
}

/// Weights are moved by at most this many units in the last place of their precision.
const NUDGE_ULPS: f64 = 4.0;

/// What differs between two sets of gradients, and what was expected.
struct Compared {
    all: f64,
    largest: (f64, usize),
}

/// Relative lengths of `found` over `factor` less `expected`, of all and of the parameter where they differ most.
fn compare(found: &[Tensor], factor: f64, expected: &[Tensor]) -> Result<Compared> {
    let (mut differ, mut length, mut largest) = (0.0, 0.0, (0.0, 0));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let pairs = to_f64(found)?.into_iter().zip(to_f64(expected)?);
        let (of, over) = pairs.fold((0.0, 0.0), |(of, over), (a, b)| {
            (of + (a / factor - b).powi(2), over + b * b)
        });
        let apart = relative(of, over);
        if apart.is_nan() || apart > largest.0 {
            largest = (apart, i);
        }
        differ += of;
        length += over;
    }
    Ok(Compared {
        all: relative(differ, length),
        largest,
    })
}

/// A length over another, of their squares.
fn relative(of: f64, over: f64) -> f64 {
    (of / over.max(1e-300)).sqrt()
}

/// The gradients of one piece of the whole batch on `device`, against those of the CPU in f64. Weights that are computed on in a half
/// precision are the same rounded numbers on both sides. Then the weights are moved `nudges` times, for [`Distance::own`].
pub fn gradients_against_f64(case: Case, device: &Device, nudges: u64) -> Result<Distance> {
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
        Ok::<_, TrainError>(piece)
    };
    let found = gradients(&model, &parameters, device, factor)?;
    let expected = gradients(&exact, &whole, &Device::Cpu, 1.0)?;
    let apart = compare(&found.gradients, factor, &expected.gradients)?;
    let mut own = None::<f64>;
    for i in 0..nudges {
        let mut near = whole.clone();
        nudge(
            &mut near,
            Stream::new(i),
            NUDGE_ULPS * case.precision.epsilon(),
        )?;
        let moved = gradients(&exact, &near, &Device::Cpu, 1.0)?;
        let moved = compare(&moved.gradients, 1.0, &expected.gradients)?.all;
        own = Some(own.map_or(moved, |own| own.max(moved)));
    }
    let name = whole.iter().nth(apart.largest.1);
    Ok(Distance {
        loss: (found.loss - expected.loss).abs() / expected.loss.abs(),
        all: apart.all,
        largest: apart.largest.0,
        name: name.map_or_else(String::new, |parameter| parameter.name.clone()),
        own,
    })
}

/// Moves every weight by at most `most` of itself.
fn nudge(parameters: &mut Parameters, stream: Stream, most: f64) -> Result<()> {
    let tensors: Vec<Tensor> = parameters.iter().map(|p| p.tensor.clone()).collect();
    for (i, tensor) in tensors.iter().enumerate() {
        let stream = stream.at(i as u64);
        let mut values = to_f64(tensor)?;
        for (place, value) in values.iter_mut().enumerate() {
            *value *= 1.0 + most * (2.0 * stream.uniform(place as u64) - 1.0);
        }
        parameters.set(i, Tensor::from_vec(values, tensor.shape(), &Device::Cpu)?)?;
    }
    Ok(())
}
