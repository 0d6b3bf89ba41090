//! The check of the GPU before any run needs it, and what others see of a check that runs.

use super::DeviceCheck;
use super::check_lock::{CheckGuard, CheckLock, THIS_PROCESS};
use super::check_once::decided_or_run;
use super::low_priority_threads::at_low_priority;
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tape::device::{
    DeviceKind, DevicePreference, default_threads, predict_device, predict_device_kind,
    select_device,
};

/// A check of the GPU before any run needs it. A run that begins meanwhile waits for its result.
pub struct BackgroundCheck {
    guard: CheckGuard<'static>,
    path: PathBuf,
}

impl BackgroundCheck {
    /// Reserves the check, whose result is saved at `path`. `None` if there is no GPU, if a result
    /// for these kernels is saved, if another check runs, or if one ended the process: only a run
    /// that needs the GPU takes that risk again.
    pub fn new(path: &Path) -> Option<Self> {
        let guard = reserve(
            predict_device_kind(DevicePreference::Auto),
            path,
            &THIS_PROCESS,
        )?;
        let path = path.to_owned();
        Some(BackgroundCheck { guard, path })
    }

    /// Compares the GPU with the CPU on threads of low priority, and saves the result. Blocks until
    /// it is done.
    ///
    /// # Errors
    /// It was stopped, or the GPU was lost again and again. Nothing is saved then.
    pub fn run(self) -> Result<()> {
        at_low_priority(|| {
            let mut chosen = select_device(DevicePreference::Auto)?;
            if chosen.device.is_cpu() {
                return Ok(());
            }
            let mut silent = ();
            let mut observer = self.guard.observe(&mut silent);
            decided_or_run(
                &self.guard,
                &mut chosen,
                Some(&self.path),
                &mut observer,
                DeviceCheck::run,
            )
            .map(drop)
        })
    }
}

fn reserve<'l>(kind: DeviceKind, path: &Path, lock: &'l CheckLock) -> Option<CheckGuard<'l>> {
    let is_needed = kind != DeviceKind::Cpu && DeviceCheck::load_for_any_gpu(path, kind).is_none();
    is_needed.then(|| lock.try_lock()).flatten()
}

impl DeviceCheck {
    /// Comparisons done and their number, while this process checks its GPU.
    pub fn progress() -> Option<(usize, usize)> {
        THIS_PROCESS.progress()
    }

    /// Stops the check of this process after the present comparison. A caller that waits for the
    /// check gets [`crate::TrainError::CheckStopped`], or begins the check again.
    pub fn stop() {
        THIS_PROCESS.stop();
    }

    /// Stops the check of this process and waits until it has ended, but no longer than `limit`.
    pub fn stop_and_wait(limit: Duration) {
        THIS_PROCESS.stop_and_wait(limit);
    }

    /// Describes the device of the next run without making it, and what the check saved at `path`
    /// says about it: "Metal on Apple M1, 61 operations checked on this Mac".
    pub fn describe_device(path: &Path) -> String {
        let kind = predict_device_kind(DevicePreference::Auto);
        described(&predict_device(), kind, path)
    }
}

fn described(device: &str, kind: DeviceKind, path: &Path) -> String {
    if kind == DeviceKind::Cpu {
        return device.to_owned();
    }
    let machine = if kind == DeviceKind::Metal {
        "Mac"
    } else {
        "machine"
    };
    let saved = DeviceCheck::load_for_any_gpu(path, kind);
    match saved
        .as_ref()
        .and_then(|check| Some((check, check.outcome()?)))
    {
        None => format!("{device}; Ebb checks each operation before its first use"),
        Some((check, Ok(()))) => format!("{device}{}", check.passed(machine)),
        Some((_, Err(what))) => format!(
            "CPU, {} threads: {kind} cannot be used on this machine, because the check of {what} failed",
            default_threads()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_once::{Unfinished, saved_or_run};
    use super::super::tests::{cpu, findings};
    use super::super::{CheckObserver, RefusedKernels};
    use super::*;
    use crate::error::TrainError;
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tape::device::SelectedDevice;

    fn metal() -> SelectedDevice {
        SelectedDevice {
            kind: DeviceKind::Metal,
            ..cpu()
        }
    }

    fn saved(passes: bool) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("doctor.json");
        DeviceCheck::new(&metal(), &findings(passes)).save(&path);
        (folder, path)
    }

    /// A run that sees the progress of a check, and stops it after so many looks.
    struct Looks<'a> {
        at: &'a AtomicUsize,
        stops_after: usize,
    }

    impl CheckObserver for Looks<'_> {
        fn progress(&mut self, done: usize, total: usize) -> ControlFlow<()> {
            assert_eq!((done, total), (3, 9));
            if self.at.fetch_add(1, Ordering::Relaxed) + 1 == self.stops_after {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    }

    /// A check in the background of the CPU, in the place of a GPU, and a run that begins
    /// meanwhile. Returns the outcome of both.
    fn joined(lock: &CheckLock, stops_after: usize) -> [Result<DeviceCheck>; 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("doctor.json");
        let looks = AtomicUsize::new(0);
        let guard = lock.try_lock().expect("nothing runs");
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let mut looks = Looks {
                    at: &looks,
                    stops_after,
                };
                let _guard = lock.lock(&mut looks)?;
                saved_or_run(&mut cpu(), Some(&path), &mut looks, |_, _| {
                    panic!("it was checked already")
                })
            });
            let mut silent = ();
            let mut observer = guard.observe(&mut silent);
            let outcome = saved_or_run(&mut cpu(), Some(&path), &mut observer, |_, observer| {
                while looks.load(Ordering::Relaxed) < 2 {
                    if observer.progress(3, 9).is_break() {
                        return Err(TrainError::CheckStopped);
                    }
                    std::thread::yield_now();
                }
                match observer.progress(3, 9) {
                    ControlFlow::Break(()) => Err(TrainError::CheckStopped),
                    ControlFlow::Continue(()) => {
                        Ok((DeviceCheck::new(&cpu(), &findings(true)), Vec::new()))
                    }
                }
            });
            drop(guard);
            [outcome, run.join().expect("it ends")]
        })
    }

    #[test]
    fn a_check_is_reserved_only_for_a_gpu_without_a_result() {
        let lock = CheckLock::new();
        let (_folder, path) = saved(true);
        let reserved = |kind, path: &Path| reserve(kind, path, &lock).is_some();
        assert!(!reserved(DeviceKind::Metal, &path), "it is saved");
        assert!(reserved(DeviceKind::Cuda, &path), "that is another device");
        let none = path.with_extension("none");
        assert!(reserved(DeviceKind::Metal, &none));
        assert!(!reserved(DeviceKind::Cpu, &none), "that is no GPU");
        let _running = lock.try_lock().expect("nothing runs");
        assert!(!reserved(DeviceKind::Metal, &none), "another check runs");
    }

    #[test]
    fn a_check_that_ended_the_process_is_not_repeated_in_the_background() {
        let (_folder, path) = saved(true);
        Unfinished::default().save(&path, &metal(), 7);
        assert!(reserve(DeviceKind::Metal, &path, &CheckLock::new()).is_none());
    }

    #[test]
    fn a_run_waits_for_a_check_in_the_background_and_uses_its_result() {
        let [check, run] = joined(&CheckLock::new(), usize::MAX);
        assert_eq!(check.expect("it ends").operations(), 2);
        assert_eq!(run.expect("it is saved").operations(), 2);
    }

    #[test]
    fn a_run_that_is_stopped_while_it_waits_stops_the_check() {
        let lock = CheckLock::new();
        let [check, run] = joined(&lock, 1);
        assert!(matches!(check, Err(TrainError::CheckStopped)));
        assert!(matches!(run, Err(TrainError::CheckStopped)));
        assert!(lock.try_lock().is_some(), "the next check may run");
    }

    #[test]
    fn a_process_checks_its_gpu_once_even_if_nothing_can_be_saved() {
        let lock = CheckLock::new();
        let guard = lock.try_lock().expect("nothing runs");
        let result = DeviceCheck::new(&cpu(), &findings(true));
        let mut checks = 0;
        for _ in 0..2 {
            let check = decided_or_run(&guard, &mut cpu(), None, &mut (), |_, _| {
                checks += 1;
                Ok((result.clone(), Vec::new()))
            });
            assert_eq!(check.expect("it ends"), result);
        }
        assert_eq!(checks, 1, "a run may compute meanwhile");
        drop(guard);
        // A check that ends without a result decides nothing, and another device has its own.
        let guard = lock.lock(&mut ()).expect("nothing runs");
        let outcome = decided_or_run(&guard, &mut metal(), None, &mut (), |_, _| {
            Err(TrainError::CheckStopped)
        });
        assert!(matches!(outcome, Err(TrainError::CheckStopped)));
        let check = decided_or_run(&guard, &mut cpu(), None, &mut (), |_, _| {
            Err(TrainError::CheckStopped)
        });
        assert_eq!(check.expect("it was decided before"), result);
    }

    #[test]
    fn a_check_that_is_stopped_saves_nothing() {
        let lock = CheckLock::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("doctor.json");
        let guard = lock.try_lock().expect("nothing runs");
        lock.stop();
        let mut silent = ();
        let mut observer = guard.observe(&mut silent);
        let outcome = saved_or_run(&mut cpu(), Some(&path), &mut observer, DeviceCheck::run);
        assert!(matches!(outcome, Err(TrainError::CheckStopped)));
        assert!(!path.exists());
        // A wait for a check that goes on has a limit.
        lock.stop_and_wait(Duration::from_millis(1));
        drop(guard);
        lock.stop_and_wait(Duration::from_secs(600));
    }

    #[test]
    fn what_is_not_used_stands_beside_the_name_of_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("doctor.json");
        let refused = |group: &str, precision: &str| RefusedKernels {
            group: group.to_owned(),
            precision: precision.to_owned(),
            what: "layer norm".to_owned(),
        };
        let check = DeviceCheck {
            failed_halves: [("bf16".to_owned(), "conv2d 3x3".to_owned())].into(),
            refused_kernels: vec![
                refused("layer norms", "f32"),
                refused("attention", "f16"),
                refused("layer norms", "bf16"),
            ],
            ..DeviceCheck::new(&metal(), &findings(true))
        };
        check.save(&path);
        let beside = ", without Ebb's own kernels for attention, layer norms (they failed the check here), without bf16 (wrong results here), 2 operations checked on this ";
        let shown = described("Metal on Apple M1", DeviceKind::Metal, &path);
        assert_eq!(shown, format!("Metal on Apple M1{beside}Mac"));
        let chosen = check.apply(cpu(), DevicePreference::Auto).unwrap();
        let printed = chosen.reason;
        assert!(printed.ends_with(&format!("{beside}machine")), "{printed}");
    }

    #[test]
    fn the_device_is_described_with_the_result_of_its_check() {
        let describe = |path: &Path| described("Metal on Apple M1", DeviceKind::Metal, path);
        let (_folder, path) = saved(true);
        assert_eq!(
            describe(&path),
            "Metal on Apple M1, 2 operations checked on this Mac"
        );
        let unknown = "Metal on Apple M1; Ebb checks each operation before its first use";
        assert_eq!(describe(&path.with_extension("none")), unknown);
        let before = Unfinished { times: 0, at: 7 };
        before.save(&path, &metal(), 7);
        assert_eq!(describe(&path), unknown);
        let before = Unfinished { times: 1, at: 7 };
        before.save(&path, &metal(), 7);
        let text = describe(&path);
        assert!(
            text.starts_with("CPU, ") && text.contains("never finished"),
            "{text}"
        );
        let (_folder, path) = saved(false);
        let text = describe(&path);
        let wrong = "metal cannot be used on this machine, because the check of conv2d 3x3 at micro-batch 2 failed";
        assert!(text.starts_with("CPU, ") && text.ends_with(wrong), "{text}");
        assert_eq!(described("CPU", DeviceKind::Cpu, &path), "CPU");
    }
}
