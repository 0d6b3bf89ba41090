//! Opens a run from its folder: replays its events, and adds a crash report if its process exited
//! without an end event.

use crate::RunlogError;
use crate::event_file::read_events;
use crate::fold_events::Run;
use crate::memory_before_crash::CrashReport;
use crate::run_folder::RunFolder;
use jiff::Zoned;
use std::fs;
use std::time::UNIX_EPOCH;

impl RunFolder {
    /// Folds the run's events. A run without an end event that no process trains has ended early.
    ///
    /// # Errors
    /// If the event file cannot be read or is damaged.
    pub fn replay(&self) -> Result<Run, RunlogError> {
        // Ask first: a run that ends in between has written its end event by then.
        let alive = self.is_alive();
        let mut run = Run::default();
        if self.events_path().exists() {
            for event in read_events(&self.events_path())? {
                run.apply(&event);
            }
        }
        if !alive {
            self.mark_crashed(&mut run);
        }
        Ok(run)
    }

    /// Marks a run without an end event as ended early and adds its crash report. Call it if no
    /// process trains the run. Changes nothing if the run had already ended.
    pub fn mark_crashed(&self, run: &mut Run) {
        if run.mark_process_exited()
            // Without readable events there is no report, but the run has still ended.
            && let Ok(Some(report)) = self.crash_report()
        {
            run.set_crash_report(report);
        }
    }

    /// Writes the crash report of the run's newest life; `None` if that life has no memory sample.
    ///
    /// # Errors
    /// If the event file cannot be read or is damaged.
    pub fn crash_report(&self) -> Result<Option<CrashReport>, RunlogError> {
        let path = self.events_path();
        if !path.exists() {
            return Ok(None);
        }
        let events = read_events(&path)?;
        let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
        let age = modified
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_unix_ms = age.map_or(0, |age| age.as_millis() as u64);
        Ok(CrashReport::from_events(
            &events,
            modified_unix_ms,
            &Zoned::now(),
        ))
    }
}
