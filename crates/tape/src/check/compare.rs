//! Runs a case and compares it with finite differences, or with another device or form.

use super::cases::Case;
use crate::cancel::Cancel;
use crate::error::Result;
use crate::inplace::to_f64;
use crate::objective_c::guarded;
use crate::parameters::Parameters;
use crate::rng::Rng;
use crate::tape::{Kernels, Tape, Value};
use candle_core::{DType, Device, Tensor};

/// The result of a case: its output, and the gradient of each input under a fixed projection of the
/// output.
pub struct Outcome {
    /// Values of the output.
    pub output: Vec<f64>,
    /// Values of each input's gradient.
    pub gradients: Vec<Vec<f64>>,
}

impl Outcome {
    /// The largest difference from `other`, relative to the largest value of each array, and the
    /// name of that array.
    pub fn difference(&self, other: &Outcome) -> (f64, String) {
        let mut worst = (
            relative(&self.output, &other.output),
            "the output".to_owned(),
        );
        for (i, (a, b)) in self.gradients.iter().zip(&other.gradients).enumerate() {
            let difference = relative(a, b);
            if difference.is_nan() || difference > worst.0 {
                worst = (difference, format!("the gradient of input {i}"));
            }
        }
        worst
    }
}

/// `max |a - b| / max |b|`.
fn relative(a: &[f64], b: &[f64]) -> f64 {
    let scale = b.iter().fold(1e-30f64, |s, v| s.max(v.abs()));
    a.iter().zip(b).fold(0.0, |worst: f64, (a, b)| {
        let difference = (a - b).abs() / scale;
        if difference.is_nan() || difference > worst {
            difference
        } else {
            worst
        }
    })
}

fn projection(shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    let stream = Rng::new(11);
    let count = shape.iter().product::<usize>() as u64;
    let values = (0..count).map(|i| stream.uniform(i) + 0.5).collect();
    crate::convert_dtype::host_tensor(values, shape, dtype, device)
}

/// Runs a case on a device, in an element type and with a form.
pub fn run(case: &Case, device: &Device, dtype: DType, kernels: Kernels) -> Result<Outcome> {
    guarded(|| outcome(case, device, dtype, kernels))
}

fn outcome(case: &Case, device: &Device, dtype: DType, kernels: Kernels) -> Result<Outcome> {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let inputs = case
        .inputs
        .iter()
        .map(|t| {
            Ok(tape.variable(crate::convert_dtype::host_tensor(
                to_f64(t)?,
                t.dims(),
                dtype,
                device,
            )?))
        })
        .collect::<Result<Vec<Value>>>()?;
    let y = (case.run)(&tape, &inputs)?;
    let output = to_f64(y.tensor())?;
    let seed = if y.dims().is_empty() {
        y.tensor().ones_like()?
    } else {
        projection(y.dims(), y.tensor().dtype(), device)?
    };
    let gradients = tape.backward_from(vec![(y, seed)], &inputs)?.inputs;
    let gradients = gradients
        .into_iter()
        .map(|g| g.map_or(Ok(Vec::new()), |g| to_f64(&g)))
        .collect::<Result<_>>()?;
    Ok(Outcome { output, gradients })
}

/// Step of the central difference: the cube root of f64's precision.
const STEP: f64 = 6e-6;

/// Largest relative difference between the case's gradients and central finite differences in f64.
pub fn finite_difference_error(case: &Case, kernels: Kernels) -> Result<f64> {
    let outcome = run(case, &Device::Cpu, DType::F64, kernels)?;
    let mut worst = 0.0f64;
    for (i, input) in case.inputs.iter().enumerate() {
        let values = to_f64(input)?;
        let mut numeric = Vec::with_capacity(values.len());
        for at in 0..values.len() {
            let probe = |step: f64| -> Result<f64> {
                let mut moved = values.clone();
                moved[at] += step;
                let mut inputs = case.inputs.clone();
                inputs[i] = Tensor::from_vec(moved, input.dims(), &Device::Cpu)?;
                projected(case, &inputs, kernels)
            };
            numeric.push((probe(STEP)? - probe(-STEP)?) / (2.0 * STEP));
        }
        worst = worst.max(relative(&outcome.gradients[i], &numeric));
    }
    Ok(worst)
}

fn projected(case: &Case, inputs: &[Tensor], kernels: Kernels) -> Result<f64> {
    let parameters = Parameters::default();
    let tape = Tape::forward_only(&parameters, Cancel::default(), kernels);
    let inputs: Vec<Value> = inputs.iter().cloned().map(Value::constant).collect();
    let y = (case.run)(&tape, &inputs)?;
    if y.dims().is_empty() {
        return Ok(to_f64(y.tensor())?[0]);
    }
    let weights = to_f64(&projection(y.dims(), DType::F64, &Device::Cpu)?)?;
    Ok(to_f64(y.tensor())?
        .iter()
        .zip(weights)
        .map(|(y, w)| y * w)
        .sum())
}
