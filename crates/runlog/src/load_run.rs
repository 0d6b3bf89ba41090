//! Opens a run from its folder: replays its events, and adds a crash report if its process exited
//! without an end event.

use crate::RunlogError;
use crate::event::RunEvent;
use crate::event_file::EventReader;
use crate::fold_events::Run;
use crate::memory_before_crash::{CrashReport, REPORT_MS};
use crate::run_folder::RunFolder;
use jiff::Zoned;
use std::fs;
use std::path::Path;
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
            for event in EventReader::open(&self.events_path())? {
                run.apply(&event?);
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
        let events = events_of_newest_life(&path)?;
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

/// Events that are kept before the old ones are dropped.
const MOST_KEPT: usize = 4096;

/// The events that a crash report needs: how the newest life and the run began, the decisions of
/// this life, its memory samples of the last two minutes, and its last event. A long run has
/// millions of others.
fn events_of_newest_life(path: &Path) -> Result<Vec<RunEvent>, RunlogError> {
    let mut kept: Vec<RunEvent> = Vec::new();
    let (mut last, mut most) = (None, MOST_KEPT);
    for event in EventReader::open(path)? {
        let event = event?;
        match &event {
            RunEvent::Started(_) => kept.clear(),
            RunEvent::Resumed { .. } => kept.retain(|e| matches!(e, RunEvent::Started(_))),
            RunEvent::Memory { .. } | RunEvent::Decision { .. } => {}
            _ => {
                last = Some(event);
                continue;
            }
        }
        let now_ms = event.at_ms();
        kept.push(event);
        last = None;
        if kept.len() == most {
            let is_sample = |event: &RunEvent| matches!(event, RunEvent::Memory { .. });
            kept.retain(|event| {
                !is_sample(event) || event.at_ms().saturating_add(REPORT_MS) >= now_ms
            });
            most = kept.len() + MOST_KEPT;
        }
    }
    kept.extend(last);
    Ok(kept)
}
