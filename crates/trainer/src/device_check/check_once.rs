//! Checks a device at most once: uses the result that this process or an earlier one has, or runs
//! the check and saves its result. Before each comparison it saves which one runs. If the process
//! ends in the same comparison again and again, the device is refused.

use super::DeviceCheck;
use super::check_lock::CheckGuard;
use super::check_observer::CheckObserver;
use super::compare_with_cpu::Finding;
use crate::error::Result;
use std::ops::ControlFlow;
use std::path::Path;
use tape::device::SelectedDevice;

/// Checks that may end the process in the same comparison before the GPU is refused.
pub(super) const MOST_UNFINISHED: u32 = 2;

/// The result that this process uses already, or the saved one, or that of `run`. If the device
/// passed, this process uses the result from now on.
pub(super) fn decided_or_run(
    guard: &CheckGuard,
    chosen: &mut SelectedDevice,
    path: Option<&Path>,
    observer: &mut dyn CheckObserver,
    run: impl FnOnce(&mut SelectedDevice, &mut dyn CheckObserver) -> Result<(DeviceCheck, Vec<Finding>)>,
) -> Result<DeviceCheck> {
    if let Some(decided) = guard.decided().filter(|check| check.is_about(chosen)) {
        return Ok(decided);
    }
    let check = saved_or_run(chosen, path, observer, run)?;
    // No run computes on a device that failed. `ebb doctor` may find it right meanwhile.
    if check.outcome() == Some(Ok(())) {
        guard.decide(&check);
    }
    Ok(check)
}

/// The saved result, or that of `run`, which is then saved.
pub(super) fn saved_or_run(
    chosen: &mut SelectedDevice,
    path: Option<&Path>,
    observer: &mut dyn CheckObserver,
    run: impl FnOnce(&mut SelectedDevice, &mut dyn CheckObserver) -> Result<(DeviceCheck, Vec<Finding>)>,
) -> Result<DeviceCheck> {
    let Some(path) = path else {
        return Ok(run(chosen, observer)?.0);
    };
    let saved = DeviceCheck::load(path, chosen);
    let before = Unfinished::from_saved(saved.as_ref());
    match saved {
        Some(check) if before.times == 0 => return Ok(check),
        _ if before.times >= MOST_UNFINISHED => {
            return Ok(before.outcome(chosen));
        }
        _ => {}
    }
    let mut observer = SavesProgress {
        path,
        chosen: chosen.clone(),
        before,
        observer,
    };
    let outcome = run(chosen, &mut observer).map(|(check, _)| check);
    match &outcome {
        Ok(check) => check.save(path),
        // The user ended it, or the device was lost: that says nothing about its results. A missing
        // file and one that cannot be removed both mean that nothing is known.
        Err(_) => drop(disk::remove_file(path)),
    }
    outcome
}

/// How often checks ended the process, all in the same comparison.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unfinished {
    pub(super) times: u32,
    pub(super) at: usize,
}

impl Unfinished {
    /// What the check left that was saved last.
    fn from_saved(saved: Option<&DeviceCheck>) -> Self {
        saved.map_or_else(Unfinished::default, |check| Unfinished {
            times: check.unfinished,
            at: check.unfinished_at,
        })
    }

    /// Saves that the comparison `at` begins, which the process may not survive.
    pub(super) fn save(self, path: &Path, chosen: &SelectedDevice, at: usize) {
        let begun = DeviceCheck {
            unfinished: if self.at == at { self.times + 1 } else { 1 },
            unfinished_at: at,
            ..DeviceCheck::for_device(chosen)
        };
        begun.save(path);
    }

    /// The outcome for a device whose check ended the process each time.
    fn outcome(self, chosen: &SelectedDevice) -> DeviceCheck {
        DeviceCheck {
            failed: Some(never_finished(self.times)),
            unfinished: self.times,
            ..DeviceCheck::for_device(chosen)
        }
    }
}

/// Saves which comparison runs, and passes everything on.
struct SavesProgress<'o> {
    path: &'o Path,
    chosen: SelectedDevice,
    before: Unfinished,
    observer: &'o mut dyn CheckObserver,
}

impl CheckObserver for SavesProgress<'_> {
    fn progress(&mut self, done: usize, total: usize) -> ControlFlow<()> {
        self.before.save(self.path, &self.chosen, done);
        self.observer.progress(done, total)
    }

    fn finding(&mut self, finding: &Finding) {
        self.observer.finding(finding);
    }
}

/// How messages name the failure of such a device.
pub(super) fn never_finished(times: u32) -> String {
    format!("an operation that never finished in {times} attempts")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cpu, findings};
    use super::*;
    use crate::error::TrainError;
    use tape::device::DevicePreference;

    /// A check that ends the process in the comparison `at`, as the file shows it afterwards.
    fn interrupted(path: &Path, at: usize) {
        let saved = DeviceCheck::load(path, &cpu());
        Unfinished::from_saved(saved.as_ref()).save(path, &cpu(), at);
    }

    #[test]
    fn a_device_that_ends_the_process_twice_in_one_comparison_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("doctor.json");
        let passed = || Ok((DeviceCheck::new(&cpu(), &findings(true)), Vec::new()));
        interrupted(&path, 7);
        // A process that was ended elsewhere was probably ended by the user.
        interrupted(&path, 12);
        interrupted(&path, 12);
        let check = saved_or_run(&mut cpu(), Some(&path), &mut (), |_, _| {
            panic!("no other attempt")
        });
        let check = check.unwrap();
        let refused = check.apply(cpu(), DevicePreference::Auto).unwrap();
        assert!(
            refused.reason.contains("never finished"),
            "{}",
            refused.reason
        );
        // A check that finishes is trusted again.
        let path = folder.path().join("other.json");
        interrupted(&path, 7);
        interrupted(&path, 12);
        saved_or_run(&mut cpu(), Some(&path), &mut (), |_, _| passed()).unwrap();
        let again = saved_or_run(&mut cpu(), Some(&path), &mut (), |_, _| {
            panic!("it was saved")
        });
        assert_eq!(again.unwrap(), passed().unwrap().0);
    }

    #[test]
    fn a_check_saves_which_comparison_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("doctor.json");
        let outcome = saved_or_run(&mut cpu(), Some(&path), &mut (), |chosen, observer| {
            let _ = observer.progress(3, 9);
            let saved = DeviceCheck::load(&path, chosen).unwrap();
            assert_eq!((saved.unfinished, saved.unfinished_at), (1, 3));
            Err(TrainError::CheckStopped)
        });
        assert!(matches!(outcome, Err(TrainError::CheckStopped)));
        assert!(
            !path.exists(),
            "a check that the user stops leaves no result"
        );
    }
}
