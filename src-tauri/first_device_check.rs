//! Checks the GPU at the first launch, while the user looks at the data, so that the first training
//! need not wait. Nothing is checked while a training runs or memory is short: the first training
//! then checks the GPU itself.

use crate::current_training::Active;
use crate::lock_mutex::lock;
use crate::paths::device_check_path;
use pressure::Level;
use runlog::{RunFolder, RunStore};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tauri::async_runtime::{spawn, spawn_blocking};
use trainer::{BackgroundCheck, DeviceCheck};

/// The page is drawn and has asked for its data by then.
const DELAY: Duration = Duration::from_secs(2);

/// The device of the next run, as the window knows it.
#[derive(Default)]
pub struct FirstDeviceCheck {
    begun: AtomicBool,
    device: Mutex<DeviceText>,
}

/// The description of the device, and what it depends on.
#[derive(Default)]
struct DeviceText {
    /// When the file of the saved check changed last.
    changed: Option<SystemTime>,
    text: String,
}

impl FirstDeviceCheck {
    /// The device of the next run, and what its check found.
    pub fn device(&self) -> String {
        let path = device_check_path();
        let changed = std::fs::metadata(&path).and_then(|about| about.modified());
        // A check changes the file with every comparison.
        let is_checking = DeviceCheck::progress().is_some();
        let mut device = lock(&self.device);
        device.update(changed.ok(), is_checking, || {
            DeviceCheck::describe_device(&path)
        });
        device.text.clone()
    }

    /// Whether a check was asked for.
    #[cfg(test)]
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Begins `check` once the page is drawn. Only the first call has an effect.
    pub fn begin(&self, check: impl FnOnce() + Send + 'static) {
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        spawn(async move {
            tokio::time::sleep(DELAY).await;
            // This thread only waits: the check has threads of its own, at low priority.
            spawn_blocking(check);
        });
    }
}

impl DeviceText {
    fn update(
        &mut self,
        changed: Option<SystemTime>,
        is_checking: bool,
        describe: impl FnOnce() -> String,
    ) {
        if self.text.is_empty() || (self.changed != changed && !is_checking) {
            (self.changed, self.text) = (changed, describe());
        }
    }
}

/// Checks the GPU if there is no saved result, unless a training runs or memory is short.
pub fn check_now(runs: &RunStore, level: Level, active: &Active) {
    let new = || BackgroundCheck::new(&device_check_path());
    if let Some(check) = reserve(runs, level, active, new) {
        // If the check fails with an error, the first training has the same error and shows it.
        drop(check.run());
        active.purge();
    }
}

/// Returns the result of `check`, or `None` if a training runs in this or another process, or if
/// memory is short.
fn reserve<C>(
    runs: &RunStore,
    level: Level,
    active: &Active,
    check: impl FnOnce() -> Option<C>,
) -> Option<C> {
    let trains = runs
        .list()
        .unwrap_or_default()
        .iter()
        .any(RunFolder::is_alive);
    if trains || level != Level::Normal {
        return None;
    }
    active.while_nothing_trains(check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog::RunConfig;
    use trainer::Machine;

    #[test]
    fn nothing_is_checked_while_memory_is_short_or_another_process_trains() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let runs = RunStore::open(home.path());
        let active = Active::new(Machine::default());
        let reserved = |level| reserve(&runs, level, &active, || Some(())).is_some();
        assert!(reserved(Level::Normal));
        assert!(!reserved(Level::Warning));
        let folder = runs.create("birds").expect("it can be made");
        folder
            .write_config(&RunConfig::default())
            .expect("it can be written");
        let claimed = folder.claim().expect("no process trains it");
        assert!(!reserved(Level::Normal));
        drop(claimed);
        assert!(reserved(Level::Normal));
    }

    #[test]
    fn the_device_is_described_anew_after_its_check() {
        let mut device = DeviceText::default();
        let early = Some(SystemTime::UNIX_EPOCH);
        let late = early.map(|time| time + Duration::from_secs(1));
        device.update(None, true, || "Metal; not checked".into());
        device.update(early, true, || panic!("the check runs"));
        assert_eq!(device.text, "Metal; not checked");
        device.update(late, false, || "Metal; checked".into());
        device.update(late, false, || panic!("nothing changed"));
        assert_eq!(device.text, "Metal; checked");
    }
}
