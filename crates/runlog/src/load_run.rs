//! Opens a run from its folder: replays its events, and adds a crash report if its process exited
//! without an end event.

use crate::RunlogError;
use crate::crash_report::{CrashReport, REPORT_MS};
use crate::event::RunEvent;
use crate::event_file::EventReader;
use crate::fold_events::Run;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_file::{EventWriter, read_events};

    fn event(json: &str) -> RunEvent {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    /// A memory sample and a step each second, and a decision each 20 minutes.
    fn seconds(from: u64, count: u64) -> Vec<RunEvent> {
        let mut events = Vec::new();
        for second in from..from + count {
            let (at_ms, own) = (1000 * second, 1_000_000 + second);
            events.push(event(&format!(
                r#"{{"kind":"memory","at_ms":{at_ms},"sample":{{"at_ms":{at_ms},"total_bytes":16000000000,"available_bytes":8000000000,"own_bytes":{own}}},"state_bytes":1,"pressure":0.4,"level":"normal","cause":"headroom","budget_bytes":4000000000,"micro_batch":8}}"#
            )));
            if second % 1200 == 7 {
                events.push(event(&format!(
                    r#"{{"kind":"decision","at_ms":{at_ms},"step":{second},"phase":"train","previous_micro_batch":16,"micro_batches":8,"decision":{{"action":"run","micro_batch":8,"change":"shrink","release_caches":false,"predicted_peak_bytes":2,"budget_bytes":2,"cause":"headroom","reason":"another app"}},"message":"16 to 8"}}"#
                )));
            }
            events.push(event(&format!(
                r#"{{"kind":"step","at_ms":{at_ms},"step":{second},"epoch":0,"loss":1.0,"learning_rate":0.1,"gradient_norm":1.0,"samples_per_second":1.0,"wait_ms":0.0,"micro_batches":[8]}}"#
            )));
        }
        events
    }

    #[test]
    fn a_crash_report_needs_only_some_events() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = RunFolder {
            path: folder.path().into(),
        };
        let mut writer = EventWriter::append(&run).expect("it can be opened");
        let now = Zoned::now();
        let mut check = |added: Vec<RunEvent>| {
            for event in added {
                writer.write(&event).expect("it can be written");
            }
            let all = read_events(&run.events_path()).expect("it can be read");
            let kept = events_of_newest_life(&run.events_path()).expect("it can be read");
            assert!(
                kept.len() < 5000 && kept.len() < all.len(),
                "{}",
                kept.len()
            );
            let report = CrashReport::from_events(&all, 7, &now);
            assert!(report.is_some());
            assert_eq!(CrashReport::from_events(&kept, 7, &now), report);
        };
        check([vec![RunEvent::Started(Box::default())], seconds(0, 6000)].concat());
        let resumed = r#"{"kind":"resumed","at_ms":6000000,"unix_ms":9000000,"process":1,"step":6000,"device":"cpu"}"#;
        check([vec![event(resumed)], seconds(6000, 50)].concat());
        check(seconds(6050, 4500));
    }
}
