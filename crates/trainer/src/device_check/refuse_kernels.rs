//! Finds the kernels that make a comparison fail. What failed is compared again without the kernels
//! that it used; those without which it passes are refused.

use super::check_observer::CheckObserver;
use super::compare_with_cpu::{CaseError, CheckCase, Finding};
use crate::error::{Result, TrainError};
use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tape::DeviceFault;
use tape::device::{SelectedDevice, discard, select_device, synchronize};
use tape::kernels::{KernelGroup, allow_group};

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
    let mut attempts_left = ATTEMPTS;
    loop {
        attempts_left -= 1;
        let began = Instant::now();
        let error = match case.run(&chosen.device) {
            Err(error) if error.fault().is_some() => error,
            outcome => {
                let finding = Finding {
                    ms: began.elapsed().as_secs_f64() * 1000.0,
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
            chosen.device = select_device(chosen.kind.into())?.device;
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

/// Repeats the failed comparisons without the kernels that they used. Kernels without which a
/// comparison passes are refused from then on; if it still fails, the device itself is wrong.
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
    let mut refused = Vec::new();
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
            let is_refused = |group: KernelGroup, precision: &str| {
                let mut all = refused.iter();
                all.any(|r: &RefusedKernels| r.group == group.name() && r.precision == precision)
            };
            let innocent = suspects.iter().filter(|(g, p)| !is_refused(*g, p));
            innocent.for_each(|&(group, p)| allow_group(group, dtype_of(p), true));
            continue;
        }
        let what = std::mem::replace(&mut findings[index], again).what;
        for (group, precision) in suspects {
            let (group, precision) = (group.name().to_owned(), precision.to_owned());
            if refused
                .iter()
                .any(|r: &RefusedKernels| r.group == group && r.precision == precision)
            {
                continue;
            }
            refused.push(RefusedKernels {
                group,
                precision,
                what: what.clone(),
            });
        }
    }
    Ok(refused)
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
