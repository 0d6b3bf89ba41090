//! Compares a device with the CPU in f64: each operation and the small models, forward and
//! gradient, in f32, and each operation in the half precisions. On a machine without a GPU, the CPU
//! in f32 is compared.

use crate::error::Result;
use crate::task::ForwardContext;
use candle_core::{DType, Device, Tensor};
use dataset::ImageSample;
use models::{Heads, ModelId, Network};
use tape::check::{Case, cases, large_cases, run};
use tape::device::SelectedDevice;
use tape::device::with_autorelease_pool;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng};

/// Micro-batches in f32. candle's Metal convolution has a right gradient for 1 and a wrong one for
/// more.
const MICRO_BATCHES: [usize; 4] = [1, 2, 3, 8];
/// Micro-batches in the half precisions.
const HALF_MICRO_BATCHES: [usize; 2] = [1, 3];
/// Largest relative difference allowed for an operation in f32.
const OPERATION_TOLERANCE: f64 = 1e-4;
/// Largest relative difference allowed for a model in f32.
const MODEL_TOLERANCE: f64 = 1e-3;
/// Image size of the models, in pixels.
const IMAGE_SIZE: usize = 32;
const CLASSES: usize = 5;

/// A half precision.
struct Half {
    name: &'static str,
    dtype: DType,
    /// Largest relative difference allowed: twice the distance from 1 to the next number. Rounding
    /// the products of the inputs and the output takes one of them.
    tolerance: f64,
}

const HALVES: [Half; 2] = [
    Half {
        name: "bf16",
        dtype: DType::BF16,
        tolerance: 2.0 / 128.0,
    },
    Half {
        name: "f16",
        dtype: DType::F16,
        tolerance: 2.0 / 1024.0,
    },
];

/// Comparison of one operation or model in one precision at one micro-batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// `f32`, `bf16` or `f16`.
    pub precision: &'static str,
    /// Such as "conv2d 3x3" or "model convnet".
    pub what: String,
    /// Samples of the compared batch.
    pub micro_batch: usize,
    /// Largest relative difference; NaN after an error.
    pub difference: f64,
    /// The output that differs most, or the error.
    pub detail: String,
    /// Whether the difference is within the tolerance.
    pub passed: bool,
}

impl Finding {
    fn new(
        subject: Subject,
        outcome: std::result::Result<Difference, String>,
        tolerance: f64,
    ) -> Self {
        let (difference, detail) = match outcome {
            Ok(difference) => (difference.relative, difference.of),
            Err(detail) => (f64::NAN, detail),
        };
        Finding {
            precision: subject.precision,
            what: subject.what,
            micro_batch: subject.micro_batch,
            difference,
            detail,
            passed: difference <= tolerance,
        }
    }
}

/// What is compared.
struct Subject {
    precision: &'static str,
    what: String,
    micro_batch: usize,
}

/// The largest relative difference, and the output that has it.
struct Difference {
    relative: f64,
    of: String,
}

impl From<(f64, String)> for Difference {
    fn from((relative, of): (f64, String)) -> Self {
        Difference { relative, of }
    }
}

/// Compares a device with the CPU in f64. Calls `on_finding` for each finding at once, and returns
/// all of them.
///
/// # Errors
/// The table of operations cannot be built. An operation that fails is a finding, not an error.
pub(super) fn compare_with_cpu(
    chosen: &SelectedDevice,
    on_finding: &mut dyn FnMut(&Finding),
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut note = |finding: Finding| {
        on_finding(&finding);
        findings.push(finding);
    };
    for micro_batch in MICRO_BATCHES {
        let subject = |what: String| Subject {
            precision: "f32",
            what,
            micro_batch,
        };
        for case in all_cases(micro_batch)? {
            let difference =
                operation_difference(&case, &chosen.device, DType::F32).map_err(|e| e.to_string());
            let subject = subject(case.name.to_owned());
            note(Finding::new(subject, difference, OPERATION_TOLERANCE));
        }
        for kind in ModelId::SMALL {
            let difference =
                model_difference(kind, micro_batch, &chosen.device).map_err(|e| e.to_string());
            let subject = subject(format!("model {}", kind.name()));
            note(Finding::new(subject, difference, MODEL_TOLERANCE));
        }
    }
    for half in HALVES {
        for micro_batch in HALF_MICRO_BATCHES {
            for case in all_cases(micro_batch)? {
                let difference = half_difference(&case, half.dtype, &chosen.device);
                let subject = Subject {
                    precision: half.name,
                    what: case.name.to_owned(),
                    micro_batch,
                };
                let difference = difference.map_err(|e| e.to_string());
                note(Finding::new(subject, difference, half.tolerance));
            }
        }
    }
    Ok(findings)
}

/// The table of operations, and cases that are large enough for a GPU to use other kernels.
fn all_cases(micro_batch: usize) -> Result<Vec<Case>> {
    let mut all = cases(micro_batch)?;
    all.extend(large_cases(micro_batch)?);
    Ok(all)
}

/// Difference of an operation in `dtype` on `device` from the CPU in f64.
fn operation_difference(case: &Case, device: &Device, dtype: DType) -> Result<Difference> {
    let expected = run(case, &Device::Cpu, DType::F64, Kernels::Composed)?;
    let found = run(case, device, dtype, Kernels::Fused)?;
    Ok(found.difference(&expected).into())
}

/// As [`operation_difference`], with inputs that the half type holds exactly, so that only the
/// operation's own rounding counts.
fn half_difference(case: &Case, dtype: DType, device: &Device) -> Result<Difference> {
    let exact = |t: &Tensor| t.to_dtype(dtype)?.to_dtype(DType::F64);
    let inputs: candle_core::Result<_> = case.inputs.iter().map(exact).collect();
    let case = Case {
        name: case.name,
        inputs: inputs?,
        run: case.run,
    };
    operation_difference(&case, device, dtype)
}

/// Number of different operations and models.
pub(super) fn count_operations(findings: &[Finding]) -> usize {
    let mut names: Vec<&str> = findings.iter().map(|f| f.what.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

/// Largest relative difference of a model's loss and gradients from the CPU in f64.
fn model_difference(kind: ModelId, micro_batch: usize, device: &Device) -> Result<Difference> {
    let expected = gradients(kind, micro_batch, &Device::Cpu, DType::F64)?;
    let found = with_autorelease_pool(|| gradients(kind, micro_batch, device, DType::F32))?;
    let mut worst = Difference {
        relative: (found.loss - expected.loss).abs() / expected.loss.abs(),
        of: "the loss".to_owned(),
    };
    for ((name, expected), (_, found)) in expected.gradients.iter().zip(&found.gradients) {
        let scale = norm(expected.iter().copied()).max(1e-30);
        let relative = norm(expected.iter().zip(found).map(|(a, b)| a - b)) / scale;
        if relative.is_nan() || relative > worst.relative {
            worst = Difference {
                relative,
                of: format!("the gradient of {name}"),
            };
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
    kind: ModelId,
    micro_batch: usize,
    device: &Device,
    dtype: DType,
) -> Result<Gradients> {
    let (network, parameters) = Network::build(kind, IMAGE_SIZE, CLASSES, 3, dtype, device)?;
    let context = ForwardContext {
        class_weights: None,
        compression: None,
        pixels: Default::default(),
        network: &network,
        parameters: &parameters,
        input_size: IMAGE_SIZE,
        label_smoothing: 0.1,
        heads: Heads::for_classes(CLASSES),
        checkpointed: 0,
        dtype,
        loss_factor: 1.0,
        device,
        cancel: Cancel::default(),
        kernels: Kernels::Fused,
        limit_bytes: None,
    };
    let result = context.gradients(&samples(micro_batch))?;
    let named =
        |parameters: &Parameters, gradients: &[Tensor]| -> Result<Vec<(String, Vec<f64>)>> {
            parameters
                .iter()
                .zip(gradients)
                .map(|(p, g)| Ok((p.name.clone(), to_f64(g)?)))
                .collect()
        };
    Ok(Gradients {
        loss: result.loss,
        gradients: named(&parameters, &result.gradients)?,
    })
}

/// Made-up images, the same on every machine.
fn samples(count: usize) -> Vec<ImageSample> {
    let pixels = 3 * IMAGE_SIZE * IMAGE_SIZE;
    let sample = |index: usize| {
        let stream = Rng::new(5).site("doctor").at(index as u64);
        ImageSample {
            index: index as u32,
            label: (index * 2 % CLASSES) as u32,
            pixels: (0..pixels as u64)
                .map(|i| (stream.uniform(i) * 256.0) as u8)
                .collect(),
            ..ImageSample::default()
        }
    };
    (0..count).map(sample).collect()
}
