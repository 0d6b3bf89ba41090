//! Compares a device with the CPU in f64: each operation, each pass over parameters and a small
//! model of each family, forward and gradient, in f32 and in the half precisions. On a machine
//! without a GPU, the CPU itself is compared.

use super::difference::Difference;
use super::small_models::{ModelReference, SmallModel};
use crate::error::{Result, TrainError};
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use tape::check::{
    Case, CaseSpec, Outcome, PASSES, Pass, case_specs, large_specs, run, wide_specs,
};
use tape::device::catch_exception;
use tape::{DeviceFault, Kernels};

/// A precision and what holds in it.
#[derive(Clone, Copy)]
struct Precision {
    name: &'static str,
    dtype: DType,
    /// candle's Metal convolution has a right gradient for 1 and a wrong one for more.
    micro_batches: &'static [usize],
    /// Micro-batches of the models.
    model_micro_batches: &'static [usize],
    /// Largest relative difference of an operation. In a half precision twice the distance from 1
    /// to the next number: rounding the products of the inputs and the output takes one of them.
    operation_tolerance: f64,
    /// Largest relative difference of a model's loss and of its whole gradient. Rounding grows with
    /// every layer; a wrong kernel differs by about 1.
    model_tolerance: f64,
}

const PRECISIONS: [Precision; 3] = [
    Precision {
        name: "f32",
        dtype: DType::F32,
        micro_batches: &[1, 2, 3, 8],
        model_micro_batches: &[1, 3],
        operation_tolerance: 1e-4,
        model_tolerance: 1e-3,
    },
    Precision {
        name: "bf16",
        dtype: DType::BF16,
        micro_batches: &[1, 3],
        model_micro_batches: &[1],
        operation_tolerance: 2.0 / 128.0,
        model_tolerance: 0.3,
    },
    Precision {
        name: "f16",
        dtype: DType::F16,
        micro_batches: &[1, 3],
        model_micro_batches: &[1],
        operation_tolerance: 2.0 / 1024.0,
        model_tolerance: 0.06,
    },
];

/// Comparison of one operation or model in one precision at one micro-batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// Time of the comparison in milliseconds: the device's, the CPU's, and that of compiling
    /// kernels that were not used before. The CPU may compute for several comparisons at once.
    pub ms: f64,
}

/// Why a comparison has no result.
#[derive(Debug)]
pub(super) enum CaseError {
    /// The device or the operation refused.
    Failed(TrainError),
    /// A panic or an exception of the system: candle's state in this process cannot be trusted.
    Panicked(String),
}

impl CaseError {
    /// Whether the device failed in a way that says nothing about the operation, and what helps:
    /// to repeat it, on the same device or on a new one.
    pub(super) fn fault(&self) -> Option<DeviceFault> {
        match self {
            CaseError::Failed(error) => error.device_fault(),
            CaseError::Panicked(_) => Some(DeviceFault::Lost),
        }
    }
}

impl Finding {
    pub(super) fn new(
        case: &CheckCase,
        outcome: std::result::Result<&Difference, &CaseError>,
    ) -> Self {
        let (difference, detail) = match outcome {
            Ok(difference) => (difference.relative, difference.of.clone()),
            Err(CaseError::Failed(error)) => (f64::NAN, error.to_string()),
            Err(CaseError::Panicked(what)) => (f64::NAN, what.clone()),
        };
        Finding {
            precision: case.precision.name,
            what: case.name(),
            micro_batch: case.micro_batch,
            difference,
            detail,
            passed: difference <= case.tolerance(),
            ms: 0.0,
        }
    }
}

/// One comparison of the device check.
pub(super) struct CheckCase {
    precision: Precision,
    micro_batch: usize,
    /// Whether its kernels are measured: operations of most samples and wide ones, passes over
    /// parameters, and models of one sample.
    pub(super) is_measured: bool,
    subject: Subject,
}

/// What is compared.
enum Subject {
    Operation(CaseSpec),
    Pass(Pass),
    Model(SmallModel),
}

/// What a device is compared with: the inputs, and the results of the CPU in f64.
pub(super) struct Reference {
    of: ReferenceOf,
    /// How long the CPU took, in milliseconds.
    pub ms: f64,
}

enum ReferenceOf {
    Operation(Case, Outcome),
    Pass(Outcome),
    Model(Box<ModelReference>),
}

/// All comparisons, in order: first everything that a run in f32 needs.
pub(super) fn check_cases() -> Vec<CheckCase> {
    let mut all = Vec::new();
    for precision in PRECISIONS {
        let mut add = |micro_batch: usize, is_measured: bool, subject: Subject| {
            all.push(CheckCase {
                precision,
                micro_batch,
                is_measured,
                subject,
            });
        };
        let most = precision.micro_batches.iter().max();
        for &micro_batch in precision.micro_batches {
            let specs = case_specs(micro_batch).into_iter();
            let specs = specs.chain(large_specs(micro_batch));
            let is_measured = Some(&micro_batch) == most;
            specs.for_each(|spec| add(micro_batch, is_measured, Subject::Operation(spec)));
        }
        let wide = wide_specs().into_iter();
        wide.for_each(|spec| add(1, true, Subject::Operation(spec)));
        let is_f32 = precision.dtype == DType::F32;
        let passes = PASSES.into_iter().filter(|pass| is_f32 || pass.in_halves);
        passes.for_each(|pass| add(1, true, Subject::Pass(pass)));
        for &micro_batch in precision.model_micro_batches {
            let models = SmallModel::ALL.into_iter();
            let models = models.filter(|model| model.is_compared_with(micro_batch));
            models.for_each(|model| add(micro_batch, micro_batch == 1, Subject::Model(model)));
        }
    }
    all
}

impl CheckCase {
    /// "conv2d 3x3", "model gpt_micro".
    pub(super) fn name(&self) -> String {
        match &self.subject {
            Subject::Operation(spec) => spec.name.to_owned(),
            Subject::Pass(pass) => pass.name.to_owned(),
            Subject::Model(model) => format!("model {}", model.name()),
        }
    }

    fn tolerance(&self) -> f64 {
        match &self.subject {
            Subject::Operation(_) | Subject::Pass(_) => self.precision.operation_tolerance,
            Subject::Model(_) => self.precision.model_tolerance,
        }
    }

    /// What the device is compared with. Uses only the CPU.
    pub(super) fn reference(&self) -> std::result::Result<Reference, CaseError> {
        let (dtype, began) = (self.precision.dtype, Instant::now());
        let of = attempt(|| {
            Ok(match &self.subject {
                Subject::Operation(spec) => {
                    let case = rounded(spec.build()?, dtype)?;
                    let expected = run(&case, &Device::Cpu, DType::F64, Kernels::Composed)?;
                    ReferenceOf::Operation(case, expected)
                }
                Subject::Pass(pass) => ReferenceOf::Pass((pass.run)(&Device::Cpu, DType::F64)?),
                Subject::Model(model) => {
                    ReferenceOf::Model(Box::new(model.reference(self.micro_batch, dtype)?))
                }
            })
        })?;
        Ok(Reference {
            of,
            ms: began.elapsed().as_secs_f64() * 1000.0,
        })
    }

    /// Compares the device with the reference of this case.
    pub(super) fn run(
        &self,
        device: &Device,
        reference: &Reference,
    ) -> std::result::Result<Difference, CaseError> {
        let dtype = self.precision.dtype;
        attempt(|| match (&self.subject, &reference.of) {
            (_, ReferenceOf::Operation(case, expected)) => {
                let found = run(case, device, dtype, Kernels::Fused)?;
                Ok(found.difference(expected).into())
            }
            (Subject::Pass(pass), ReferenceOf::Pass(expected)) => {
                Ok((pass.run)(device, dtype)?.difference(expected).into())
            }
            (_, ReferenceOf::Model(model)) => model.difference(dtype, device),
            (_, ReferenceOf::Pass(_)) => unreachable!("only a pass has the reference of a pass"),
        })
    }

    /// Runs the device's part alone, without a comparison.
    pub(super) fn run_on_device(&self, device: &Device) -> std::result::Result<(), CaseError> {
        let dtype = self.precision.dtype;
        attempt(|| {
            match &self.subject {
                Subject::Operation(spec) => {
                    drop(run(&spec.build()?, device, dtype, Kernels::Fused)?)
                }
                Subject::Pass(pass) => drop((pass.run)(device, dtype)?),
                Subject::Model(model) => model.run_on(self.micro_batch, dtype, device)?,
            }
            Ok(())
        })
    }
}

/// Runs a part of the check. A panic and an exception of the system are errors.
fn attempt<R>(work: impl FnOnce() -> Result<R>) -> std::result::Result<R, CaseError> {
    match catch_unwind(AssertUnwindSafe(|| catch_exception(work))) {
        Ok(Ok(outcome)) => outcome.map_err(|error| match error {
            // Caught closer to the device, as in training.
            TrainError::Tape(error) if error.is_exception() => {
                CaseError::Panicked(error.to_string())
            }
            error => CaseError::Failed(error),
        }),
        Ok(Err(exception)) => Err(CaseError::Panicked(exception.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(CaseError::Panicked(format!(
                "it panicked: {}",
                text.unwrap_or("no message")
            )))
        }
    }
}

/// The case with its inputs rounded to a half type, so that only the rounding of the operation
/// itself counts.
fn rounded(case: Case, dtype: DType) -> Result<Case> {
    if dtype == DType::F32 {
        return Ok(case);
    }
    let round = |t: &Tensor| t.to_dtype(dtype)?.to_dtype(DType::F64);
    let inputs: candle_core::Result<_> = case.inputs.iter().map(round).collect();
    Ok(Case {
        inputs: inputs?,
        ..case
    })
}

/// Number of different operations and models.
pub(super) fn count_operations(findings: &[Finding]) -> usize {
    let mut names: Vec<&str> = findings.iter().map(|f| f.what.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_comparison_is_its_outcome() {
        let outcome = attempt::<()>(|| panic!("an encoder was missing"));
        assert!(matches!(
            outcome,
            Err(CaseError::Panicked(what)) if what == "it panicked: an encoder was missing"
        ));
        let outcome = attempt::<()>(|| Err(tape::TapeError::Cancelled.into()));
        assert!(outcome.is_err_and(|error| error.fault().is_none()));
    }

    #[test]
    fn a_small_model_of_every_published_family_is_compared() {
        for family in models::PretrainedFamily::all() {
            let model = SmallModel::Published(family);
            assert!(SmallModel::ALL.contains(&model), "{}", family.name());
        }
    }

    #[test]
    fn the_step_of_every_optimizer_is_compared() {
        for optimizer in crate::optimizer::OptimizerKind::ALL {
            let name = optimizer.name();
            assert!(PASSES.iter().any(|pass| pass.name == name), "{name}");
        }
    }

    /// `tests/terminal/doctor.rs` makes all comparisons.
    #[test]
    fn every_model_is_compared_in_every_precision() {
        let cases = check_cases();
        for model in SmallModel::ALL {
            for precision in PRECISIONS {
                let what = format!("model {}", model.name());
                let is_it =
                    |case: &CheckCase| case.name() == what && case.precision.name == precision.name;
                assert!(cases.iter().any(is_it), "{what} in {}", precision.name);
            }
        }
    }
}
