//! `ebb doctor`: each operation and both models, forward and gradient, on the GPU against the CPU in f64, and each operation in
//! the half precisions. An operation that fails is named and its device refused, or that precision on it. Where there is no
//! GPU the CPU is the one under test.

use crate::error::Result;
use crate::models::Network;
use crate::plan::ModelKind;
use crate::task::{Heads, ImageTask};
use candle_core::{DType, Device, Tensor};
use dataset::Sample;
use tape::check::{Case, cases, large_cases, run};
use tape::device::SelectedDevice;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng};

/// Micro-batches tried: candle's Metal convolution gradient is right for 1 and wrong for more.
pub const MICRO_BATCHES: [usize; 4] = [1, 2, 3, 8];
/// Largest relative difference allowed for an operation and for a whole model in f32.
const OPERATION_TOLERANCE: f64 = 1e-4;
const MODEL_TOLERANCE: f64 = 1e-3;
/// Side of the images and number of classes of the model check.
const IMAGE_SIZE: usize = 32;
const CLASSES: usize = 5;

/// Micro-batches tried in the half precisions.
const HALF_MICRO_BATCHES: [usize; 2] = [1, 3];

/// The half precisions, by name, with the largest relative difference allowed: twice the distance from 1 to the next number, of
/// which rounding the inputs' products and the output takes one.
const HALVES: [(&str, DType, f64); 2] = [
    ("bf16", DType::BF16, 2.0 / 128.0),
    ("f16", DType::F16, 2.0 / 1024.0),
];

/// One line of the examination.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// `f32`, `bf16` or `f16`.
    pub precision: &'static str,
    /// "conv2d 3x3", "model convnet".
    pub what: String,
    /// Micro-batch.
    pub micro_batch: usize,
    /// Largest relative difference; NaN or an error fails.
    pub difference: f64,
    /// What differed the most, or the error.
    pub detail: String,
    /// Within tolerance.
    pub passed: bool,
}

/// Examines a device. `seen` hears each finding as it is made.
pub fn examine(chosen: &SelectedDevice, seen: &mut dyn FnMut(&Finding)) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut note = |finding: Finding| {
        seen(&finding);
        findings.push(finding);
    };
    for micro_batch in MICRO_BATCHES {
        for case in examined(micro_batch)? {
            let expected = run(&case, &Device::Cpu, DType::F64, Kernels::Composed)?;
            let outcome = run(&case, &chosen.device, DType::F32, Kernels::Fused)
                .map(|found| found.difference(&expected));
            note(finding(
                ("f32", case.name.to_owned(), micro_batch),
                outcome.map_err(|e| e.to_string()),
                OPERATION_TOLERANCE,
            ));
        }
        for kind in ModelKind::SMALL {
            let outcome =
                model_difference(kind, micro_batch, &chosen.device).map_err(|e| e.to_string());
            note(finding(
                ("f32", format!("model {}", kind.name()), micro_batch),
                outcome,
                MODEL_TOLERANCE,
            ));
        }
    }
    for (name, dtype, tolerance) in HALVES {
        for micro_batch in HALF_MICRO_BATCHES {
            for case in examined(micro_batch)? {
                let outcome = half_difference(&case, dtype, &chosen.device);
                let what = case.name.to_owned();
                note(finding(
                    (name, what, micro_batch),
                    outcome.map_err(|e| e.to_string()),
                    tolerance,
                ));
            }
        }
    }
    Ok(findings)
}

/// The table of operations, and what a GPU does otherwise where there is much of it.
fn examined(micro_batch: usize) -> Result<Vec<Case>> {
    let mut all = cases(micro_batch)?;
    all.extend(large_cases(micro_batch)?);
    Ok(all)
}

/// Largest relative difference of an operation in a half type to the CPU in f64. The inputs are numbers that the half type holds
/// exactly: what differs is the operation's own doing.
fn half_difference(case: &Case, dtype: DType, device: &Device) -> Result<(f64, String)> {
    let exact = |t: &Tensor| t.to_dtype(dtype)?.to_dtype(DType::F64);
    let inputs: candle_core::Result<_> = case.inputs.iter().map(exact).collect();
    let case = Case {
        name: case.name,
        inputs: inputs?,
        run: case.run,
    };
    let expected = run(&case, &Device::Cpu, DType::F64, Kernels::Composed)?;
    Ok(run(&case, device, dtype, Kernels::Fused)?.difference(&expected))
}

/// Number of different things examined.
pub fn operations(findings: &[Finding]) -> usize {
    let mut names: Vec<&str> = findings.iter().map(|f| f.what.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn finding(
    (precision, what, micro_batch): (&'static str, String, usize),
    outcome: std::result::Result<(f64, String), String>,
    tolerance: f64,
) -> Finding {
    match outcome {
        Ok((difference, detail)) => Finding {
            precision,
            what,
            micro_batch,
            difference,
            detail,
            passed: difference <= tolerance,
        },
        Err(detail) => Finding {
            precision,
            what,
            micro_batch,
            difference: f64::NAN,
            detail,
            passed: false,
        },
    }
}

/// Largest relative difference of a model's loss and gradients to the CPU in f64.
fn model_difference(kind: ModelKind, micro_batch: usize, device: &Device) -> Result<(f64, String)> {
    let expected = gradients(kind, micro_batch, &Device::Cpu, DType::F64)?;
    let found = gradients(kind, micro_batch, device, DType::F32)?;
    let mut worst = (
        (found.loss - expected.loss).abs() / expected.loss.abs(),
        "the loss".to_owned(),
    );
    for ((name, expected), (_, found)) in expected.gradients.iter().zip(&found.gradients) {
        let scale = norm(expected.iter().copied()).max(1e-30);
        let difference = norm(expected.iter().zip(found).map(|(a, b)| a - b)) / scale;
        if difference.is_nan() || difference > worst.0 {
            worst = (difference, format!("the gradient of {name}"));
        }
    }
    Ok(worst)
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

struct Gradients {
    loss: f64,
    gradients: Vec<(String, Vec<f64>)>,
}

fn gradients(
    kind: ModelKind,
    micro_batch: usize,
    device: &Device,
    dtype: DType,
) -> Result<Gradients> {
    let (network, parameters) = Network::build(kind, IMAGE_SIZE, CLASSES, 3, dtype, device)?;
    let task = ImageTask {
        pixels: Default::default(),
        network: &network,
        parameters: &parameters,
        image_size: IMAGE_SIZE,
        label_smoothing: 0.1,
        heads: Heads::of_classes(CLASSES),
        checkpointed: 0,
        dtype,
        loss_factor: 1.0,
        device,
        cancel: Cancel::default(),
        kernels: Kernels::Fused,
        limit_bytes: None,
    };
    let piece = task.gradients(&samples(micro_batch))?;
    let named =
        |parameters: &Parameters, gradients: &[Tensor]| -> Result<Vec<(String, Vec<f64>)>> {
            parameters
                .iter()
                .zip(gradients)
                .map(|(p, g)| Ok((p.name.clone(), to_f64(g)?)))
                .collect()
        };
    Ok(Gradients {
        loss: piece.loss,
        gradients: named(&parameters, &piece.gradients)?,
    })
}

/// Made-up photographs, the same on every machine.
fn samples(count: usize) -> Vec<Sample> {
    let pixels = 3 * IMAGE_SIZE * IMAGE_SIZE;
    let sample = |index: usize| {
        let stream = Rng::new(5).site("doctor").at(index as u64);
        Sample {
            index: index as u32,
            label: (index * 2 % CLASSES) as u32,
            pixels: (0..pixels as u64)
                .map(|i| (stream.uniform(i) * 256.0) as u8)
                .collect(),
            ..Sample::default()
        }
    };
    (0..count).map(sample).collect()
}
