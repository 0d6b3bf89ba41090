//! Devices that fail, and what is saved about a check.

use super::refuse_kernels::{Used, compare};
use super::*;
use crate::threads::on_threads;
use std::ops::ControlFlow;
use tape::DeviceFault;
use tape::fault_injection::{Fault, Injection, ScheduledFault};

pub(super) fn findings(second_passes: bool) -> Vec<Finding> {
    let finding = |what: &str, passed| Finding {
        precision: "f32",
        what: what.to_owned(),
        micro_batch: 2,
        difference: 0.0,
        detail: String::new(),
        passed,
        ms: 0.0,
    };
    vec![
        finding("linear", true),
        finding("conv2d 3x3", second_passes),
    ]
}

pub(super) fn cpu() -> SelectedDevice {
    select_device(DevicePreference::Cpu).unwrap()
}

#[test]
fn a_failed_device_is_refused_with_the_operation() {
    let check = DeviceCheck::new(&cpu(), &findings(false));
    let error = check
        .clone()
        .apply(cpu(), DevicePreference::Metal)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the check of conv2d 3x3 at micro-batch 2 failed"),
        "{error}"
    );
    let instead = check.apply(cpu(), DevicePreference::Auto).unwrap();
    assert_eq!(instead.kind, crate::DeviceKind::Cpu);
    assert!(
        instead.reason.contains("cannot be used"),
        "{}",
        instead.reason
    );
}

/// Comparisons of a check under faults: operations in f32. The faults happen during these.
const UNDER_FAULTS: usize = 400;

/// The faults at these dispatches, and the check under them.
fn checked_under(faults: &[(u64, Fault)]) -> Result<DeviceCheck> {
    let scheduled = |&(at, fault)| ScheduledFault { at, fault };
    let injection = Injection::install(faults.iter().map(scheduled).collect(), 5);
    // One thread: of several, only one hears of a failure, and the others go on with wrong values.
    let checked = on_threads(1, || {
        DeviceCheck::run_cases(&check_cases()[..UNDER_FAULTS], &mut cpu(), &mut ())
    });
    assert_eq!(injection.happened().len(), faults.len());
    Ok(checked?.0)
}

#[test]
fn a_gpu_that_fails_during_the_check_is_not_called_wrong() {
    let check = checked_under(&[
        (100, Fault::Timeout),
        (400, Fault::InnocentVictim),
        (900, Fault::DeviceLost),
        (1300, Fault::SubmissionsIgnored),
        (1500, Fault::AllocationRefused),
    ]);
    let check = check.unwrap();
    assert_eq!((check.failed, check.refused_kernels.len()), (None, 0));
    assert!(check.failed_halves.is_empty());
    // One that always fails ends the check, and nothing is said about its results.
    let all: Vec<_> = (0..5).map(|n| (3 * n, Fault::DeviceLost)).collect();
    let scheduled = |&(at, fault)| ScheduledFault { at, fault };
    let _injection = Injection::install(all.iter().map(scheduled).collect(), 5);
    let ended = on_threads(1, || DeviceCheck::run(&mut cpu(), &mut ()));
    let error = ended.unwrap_err();
    assert!(error.device_fault().is_some(), "{error}");
}

/// The first comparison, under `fault` at every dispatch of all its attempts.
fn compared_under(fault: Fault, case: &CheckCase) -> Result<Finding> {
    let everywhere = (0..10_000).map(|at| ScheduledFault { at, fault });
    let _injection = Injection::install(everywhere.collect(), 5);
    compare(case, &mut cpu()).map(|(finding, _)| finding)
}

#[test]
fn a_comparison_that_always_fails_is_failed_alone_and_its_kernels_are_refused() {
    let cases = &check_cases()[..1];
    let own = (KernelGroup::Linear, "f32");
    let used = [Used::from([own])];
    for fault in [Fault::Timeout, Fault::OutOfMemory] {
        let finding = compared_under(fault, &cases[0]).unwrap();
        assert!(!finding.passed && finding.difference.is_nan());
        let detail = &finding.detail;
        assert!(detail.contains(fault.description()), "{detail}");
        // Without these kernels the comparison needs less memory or time, and passes.
        let mut findings = [finding];
        let refused = refuse_kernels(&mut cpu(), cases, &mut findings, &used, &mut ());
        let refused = refused.unwrap();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].group, own.0.name());
        assert!(DeviceCheck::new(&cpu(), &findings).failed.is_none());
        allow(true);
    }
    // An exception in each attempt says that these kernels cannot compute the operation.
    let finding = compared_under(Fault::Exception, &cases[0]).unwrap();
    assert!(!finding.passed, "{}", finding.detail);
    assert!(finding.detail.contains(Fault::Exception.description()));
    let error = compared_under(Fault::DeviceLost, &cases[0]).unwrap_err();
    assert_eq!(error.device_fault(), Some(DeviceFault::Lost));
}

#[test]
fn a_composed_form_is_compared_in_every_case_of_a_refused_kernel() {
    struct Counts(Vec<String>);
    impl CheckObserver for Counts {
        fn progress(&mut self, _: usize, _: usize) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }

        fn finding(&mut self, finding: &Finding) {
            self.0.push(finding.what.clone());
        }
    }
    let cases = &check_cases()[..3];
    let (own, other) = ((KernelGroup::Linear, "f32"), (KernelGroup::Add, "f32"));
    // The second passed with the kernels that make the first one fail; the third used others.
    let used = [
        Used::from([own]),
        Used::from([own, other]),
        Used::from([other]),
    ];
    let mut findings: Vec<Finding> = cases
        .iter()
        .map(|case| compare(case, &mut cpu()).unwrap().0)
        .collect();
    findings[0].passed = false;
    let mut observer = Counts(Vec::new());
    let refused = refuse_kernels(&mut cpu(), cases, &mut findings, &used, &mut observer);
    allow(true);
    assert_eq!(refused.unwrap().len(), 1);
    assert_eq!(observer.0, [findings[1].what.clone()]);
}

#[cfg(not(target_os = "macos"))]
#[test]
fn a_lost_gpu_that_cannot_be_made_again_leaves_the_run_to_the_cpu() {
    // No other system has Metal, so that a new device is refused here.
    let mut chosen = SelectedDevice {
        kind: crate::DeviceKind::Metal,
        ..cpu()
    };
    let lost = ScheduledFault {
        at: 0,
        fault: Fault::DeviceLost,
    };
    let injection = Injection::install(vec![lost], 5);
    let error = compare(&check_cases()[0], &mut chosen).unwrap_err();
    drop(injection);
    let text = error.to_string();
    assert!(text.contains("metal cannot be used"), "{text}");
    let decide = |error, wanted| checked(Err(error), chosen.clone(), wanted, Precision::F32);
    let again = || TapeError::Lost(text.clone()).into();
    let refused = decide(again(), DevicePreference::Metal).unwrap_err();
    assert_eq!(refused.device_fault(), Some(DeviceFault::Lost));
    let instead = decide(error, DevicePreference::Auto).unwrap();
    assert_eq!(instead.kind, crate::DeviceKind::Cpu);
    let reason = instead.reason;
    assert!(
        reason.starts_with("metal failed while it was checked: "),
        "{reason}"
    );
}

#[test]
fn a_check_of_other_kernels_or_of_another_gpu_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("doctor.json");
    let check = DeviceCheck::new(&cpu(), &findings(true));
    let others = [
        DeviceCheck {
            kernels: "0123456789abcdef".to_owned(),
            ..check.clone()
        },
        DeviceCheck {
            gpu: "applegpu_g13g".to_owned(),
            ..check.clone()
        },
    ];
    for other in others {
        other.save(&path);
        assert_eq!(DeviceCheck::load(&path, &cpu()), None);
    }
    check.save(&path);
    assert!(DeviceCheck::load(&path, &cpu()).is_some());
}

#[test]
fn the_saved_check_chooses_the_convolutions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("doctor.json");
    let names = |check: &DeviceCheck| {
        check.save(&path);
        DeviceCheck::load(&path, &cpu())
            .unwrap()
            .direct_convolutions
    };
    let check = DeviceCheck::new(&cpu(), &findings(true));
    assert!(names(&check).is_empty());
    let direct = vec!["output of a convolution".to_owned()];
    let check = DeviceCheck {
        direct_convolutions: direct.clone(),
        ..check
    };
    assert_eq!(names(&check), direct);
    // A CPU has one method only, so nothing is measured, with or without a check.
    let none = folder.path().join("none.json");
    for path in [&path, &none] {
        DeviceCheck::choose_convolutions(&cpu(), DType::F32, path).unwrap();
    }
    let types = [DType::F32, DType::BF16];
    let measured = direct_convolutions(&cpu(), &types, 0, &mut ()).unwrap();
    assert!(measured.is_empty());
}

#[test]
fn a_check_stops_between_two_comparisons() {
    struct Stop(usize);
    impl CheckObserver for Stop {
        fn progress(&mut self, done: usize, total: usize) -> ControlFlow<()> {
            assert!(done < total);
            self.0 = done;
            if done == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
    }
    let mut observer = Stop(0);
    let outcome = DeviceCheck::run(&mut cpu(), &mut observer);
    assert!(matches!(outcome, Err(TrainError::CheckStopped)));
    assert_eq!(observer.0, 3);
}

#[test]
fn a_failed_half_precision_alone_is_refused() {
    let mut findings = findings(true);
    findings[1].precision = "bf16";
    findings[1].passed = false;
    let check = DeviceCheck::new(&cpu(), &findings);
    let refused = check
        .check_precision(Precision::Bf16)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("conv2d 3x3 at micro-batch 2 gives wrong results in bf16"),
        "{refused}"
    );
    assert!(check.check_precision(Precision::F32).is_ok());
    let chosen = check.apply(cpu(), DevicePreference::Metal).unwrap();
    let what = "without bf16 (wrong results here), 2 operations checked on this machine";
    assert!(chosen.reason.ends_with(what), "{}", chosen.reason);
}

#[test]
fn a_saved_check_is_used_for_the_same_device_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/doctor.json");
    let check = DeviceCheck::new(&cpu(), &findings(true));
    check.save(&path);
    assert_eq!(DeviceCheck::load(&path, &cpu()), Some(check.clone()));
    assert_eq!(
        DeviceCheck::load(
            &path,
            &SelectedDevice {
                kind: crate::DeviceKind::Metal,
                ..cpu()
            }
        ),
        None
    );
    let chosen = check.apply(cpu(), DevicePreference::Auto).unwrap();
    assert!(
        chosen
            .reason
            .ends_with("2 operations checked on this machine"),
        "{}",
        chosen.reason
    );
}
