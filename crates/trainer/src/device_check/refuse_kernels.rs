//! Finds the kernels that make a comparison fail. What failed is compared again without the kernels
//! that it used; those without which it passes are refused.

use super::check_observer::CheckObserver;
use super::compare_with_cpu::{CaseError, CheckCase, Finding, Reference};
use crate::error::{Result, TrainError};
use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tape::device::{DeviceKind, SelectedDevice, discard, select_device, synchronize};
use tape::kernels::{KernelGroup, allow_group};
use tape::{DeviceFault, TapeError};

/// Attempts of a comparison during which the device fails.
const ATTEMPTS: u32 = 3;
/// Wait before another attempt: the GPU may be busy, or was reset.
const WAIT: Duration = Duration::from_millis(200);

/// Kernels of one operation that are wrong in one precision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedKernels {
    /// The operation, as in [`KernelGroup::name`].
    pub group: String,
    /// `f32`, `bf16` or `f16`.
    pub precision: String,
    /// The comparison that failed.
    pub what: String,
}

/// The kernels that a comparison used, each with its precision.
pub(super) type Used = BTreeSet<(KernelGroup, &'static str)>;

/// The precision with this name; f32 if there is none.
pub(super) fn dtype_of(precision: &str) -> DType {
    match precision {
        "bf16" => DType::BF16,
        "f16" => DType::F16,
        _ => DType::F32,
    }
}

/// Runs a comparison, again if the device fails during it: a GPU that is busy, reset or lost says
/// nothing about the operation. A device that may be unusable afterwards is replaced. A comparison
/// that runs out of memory or takes too long in every attempt has failed; the error is returned
/// beside the finding.
///
/// # Errors
/// The device is lost in the last attempt.
pub(super) fn compare(
    case: &CheckCase,
    chosen: &mut SelectedDevice,
) -> Result<(Finding, Option<TrainError>)> {
    compare_with(case, case.reference(), chosen)
}

/// As [`compare`], with a reference that was computed before.
///
/// # Errors
/// As [`compare`].
pub(super) fn compare_with(
    case: &CheckCase,
    mut reference: std::result::Result<Reference, CaseError>,
    chosen: &mut SelectedDevice,
) -> Result<(Finding, Option<TrainError>)> {
    let mut attempts_left = ATTEMPTS;
    loop {
        attempts_left -= 1;
        let (began, outcome, reference_ms);
        (began, outcome, reference_ms, reference) = match reference {
            Ok(found) => {
                let began = Instant::now();
                let outcome = case.run(&chosen.device, &found);
                (began, outcome, found.ms, Ok(found))
            }
            Err(error) => (Instant::now(), Err(error), 0.0, case.reference()),
        };
        let error = match outcome {
            Err(error) if error.fault().is_some() => error,
            outcome => {
                let finding = Finding {
                    ms: reference_ms + began.elapsed().as_secs_f64() * 1000.0,
                    ..Finding::new(case, outcome.as_ref())
                };
                return Ok((finding, None));
            }
        };
        // Whatever else the device reports belongs to the failed attempt.
        let _ = synchronize(&chosen.device);
        let is_lost = error.fault() == Some(DeviceFault::Lost);
        if is_lost {
            discard(std::mem::replace(&mut chosen.device, Device::Cpu));
            chosen.device = made_again(chosen.kind)?;
        }
        match error {
            _ if attempts_left > 0 => std::thread::sleep(WAIT),
            CaseError::Failed(error) if is_lost => return Err(error),
            failed => {
                let finding = Finding::new(case, Err(&failed));
                let error = match failed {
                    CaseError::Failed(error) => Some(error),
                    CaseError::Panicked(_) => None,
                };
                return Ok((finding, error));
            }
        }
    }
}

/// A new device in place of one that was lost.
///
/// # Errors
/// The device cannot be made any more: it stays lost.
fn made_again(kind: DeviceKind) -> Result<Device> {
    match select_device(kind.into()) {
        Ok(new) => Ok(new.device),
        Err(error) if error.device_fault().is_some() => Err(error.into()),
        Err(error) => Err(TapeError::Lost(error.to_string()).into()),
    }
}

/// Repeats the failed comparisons without the kernels that they used. Kernels without which a
/// comparison passes are refused from then on; if it still fails, the device itself is wrong. At
/// the end, every operation that is now composed has been compared in that form.
///
/// # Errors
/// The observer ended the check, the device is lost, or it lacks memory or time without the kernels
/// too.
pub(super) fn refuse_kernels(
    chosen: &mut SelectedDevice,
    cases: &[CheckCase],
    findings: &mut [Finding],
    used: &[Used],
    observer: &mut dyn CheckObserver,
) -> Result<Vec<RefusedKernels>> {
    let mut refused: Vec<RefusedKernels> = Vec::new();
    // How many were refused when each comparison was made last.
    let mut refused_before = vec![0; cases.len()];
    for index in 0..cases.len() {
        if findings[index].passed || used[index].is_empty() {
            continue;
        }
        if observer.progress(index, cases.len()).is_break() {
            return Err(TrainError::CheckStopped);
        }
        let suspects = suspects(index, findings, used);
        let allow_suspects = |allowed| {
            let all = suspects.iter();
            all.for_each(|&(group, precision)| allow_group(group, dtype_of(precision), allowed));
        };
        allow_suspects(false);
        let (again, error) = compare(&cases[index], chosen)?;
        if let Some(error) = error {
            allow_suspects(true);
            return Err(error);
        }
        if !again.passed {
            let innocent = suspects.iter().filter(|own| !is_refused(&refused, own));
            innocent.for_each(|&(group, p)| allow_group(group, dtype_of(p), true));
            continue;
        }
        let what = std::mem::replace(&mut findings[index], again).what;
        for own in suspects {
            if !is_refused(&refused, &own) {
                refused.push(RefusedKernels {
                    group: own.0.name().to_owned(),
                    precision: own.1.to_owned(),
                    what: what.clone(),
                });
            }
        }
        refused_before[index] = refused.len();
    }
    for index in 0..cases.len() {
        let later = &refused[refused_before[index]..];
        let mut own = used[index].iter();
        if findings[index].passed && own.any(|own| is_refused(later, own)) {
            if observer.progress(index, cases.len()).is_break() {
                return Err(TrainError::CheckStopped);
            }
            findings[index] = composed_form(&cases[index], chosen)?;
            observer.finding(&findings[index]);
        }
    }
    Ok(refused)
}

fn is_refused(refused: &[RefusedKernels], own: &(KernelGroup, &'static str)) -> bool {
    let (group, precision) = (own.0.name(), own.1);
    let mut all = refused.iter();
    all.any(|refused| refused.group == group && refused.precision == precision)
}

/// Repeats a comparison that passed with kernels which are refused now: its operations run in the
/// composed form, which was not compared.
///
/// # Errors
/// The device is lost, or it lacks memory or time without the kernels.
fn composed_form(case: &CheckCase, chosen: &mut SelectedDevice) -> Result<Finding> {
    let (finding, error) = compare(case, chosen)?;
    error.map_or(Ok(finding), Err)
}

/// The kernels that may have made a comparison fail: those that no passed comparison used, or, if
/// there are none, all that it used.
fn suspects(index: usize, findings: &[Finding], used: &[Used]) -> Used {
    let passed = findings
        .iter()
        .zip(used)
        .filter(|(finding, _)| finding.passed);
    let trusted: Used = passed.flat_map(|(_, used)| used.iter().copied()).collect();
    let untrusted: Used = used[index].difference(&trusted).copied().collect();
    if untrusted.is_empty() {
        used[index].clone()
    } else {
        untrusted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        let finding = |what: &str, passed| Finding {
            precision: "f32",
            what: what.to_owned(),
            micro_batch: 2,
            difference: 0.0,
            detail: String::new(),
            passed,
            ms: 0.0,
        };
        vec![finding("linear", true), finding("conv2d 3x3", false)]
    }

    #[test]
    fn kernels_that_no_passed_comparison_used_are_suspected_first() {
        let findings = findings();
        let (norm, sum) = (
            (KernelGroup::LayerNorm, "f32"),
            (KernelGroup::Accumulate, "f32"),
        );
        let used = [Used::from([sum]), Used::from([sum, norm])];
        assert_eq!(suspects(1, &findings, &used), Used::from([norm]));
        let used = [Used::from([sum, norm]), Used::from([sum, norm])];
        assert_eq!(suspects(1, &findings, &used), used[1]);
        // The same kernels in another precision are other kernels.
        let half = (KernelGroup::LayerNorm, "bf16");
        let used = [Used::from([norm]), Used::from([half])];
        assert_eq!(suspects(1, &findings, &used), Used::from([half]));
    }
}
