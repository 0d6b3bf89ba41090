//! Holds an evaluation of a trained model back while other apps need memory.

use super::{MICRO_BATCH, Progress};
use crate::error::Result;
use crate::machine_sources::Machine;
use crate::shared_device::SharedDevice;
use candle_core::Device;
use pressure::{Level, LevelTracker, MemorySample, MemorySource, pressure};
use std::time::Duration;

/// Samples per micro-batch while memory is short.
const REDUCED_MICRO_BATCH: usize = 4;
/// Time between two readings of a critical memory.
const WAIT: Duration = Duration::from_millis(100);
/// The evaluation goes on with one sample after it has waited for so long: perhaps it needs the
/// memory itself, and the level would never fall.
const LONGEST_WAIT_MS: u64 = 60_000;

/// Decides how many samples an evaluation may process at once. A trained model only runs forward
/// passes of a few samples, so the level of the memory pressure is enough, and no memory model is
/// learned.
pub(super) struct MemoryGate {
    source: Box<dyn MemorySource>,
    level: LevelTracker,
}

impl MemoryGate {
    /// # Errors
    /// The script that replaces the machine's memory cannot be read.
    pub fn open(machine: &Machine, device: &Device) -> Result<Self> {
        Ok(MemoryGate {
            source: machine.source(&SharedDevice::new(device), 0)?,
            level: LevelTracker::default(),
        })
    }

    /// The number of samples to process next: fewer at a warning. Waits while the level is critical
    /// and the evaluation is not cancelled, and calls `free_memory` before each wait.
    pub fn next_micro_batch(&mut self, progress: &Progress, free_memory: impl Fn()) -> usize {
        let mut began_ms = None;
        loop {
            // Without a reading there is nothing to wait for.
            let Ok(sample) = self.source.sample() else {
                return REDUCED_MICRO_BATCH;
            };
            match self.update(&sample) {
                Level::Normal => return MICRO_BATCH,
                Level::Warning => return REDUCED_MICRO_BATCH,
                Level::Critical => {}
            }
            let began_ms = *began_ms.get_or_insert(sample.at_ms);
            if progress.is_cancelled() || sample.at_ms.saturating_sub(began_ms) >= LONGEST_WAIT_MS {
                return 1;
            }
            free_memory();
            std::thread::sleep(WAIT);
        }
    }

    fn update(&mut self, sample: &MemorySample) -> Level {
        self.level.update(sample.at_ms, pressure(sample).value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_sources::{MemoryScript, ScriptBy};
    use std::cell::Cell;
    use std::fmt::Write;

    const GB: u64 = 1 << 30;

    /// A gate on a machine of 16 GB. `others_gb` is what other apps use, one reading per 500 ms.
    fn gate(folder: &tempfile::TempDir, others_gb: &[u64]) -> MemoryGate {
        let path = folder.path().join("script.jsonl");
        let mut script = String::new();
        for (line, others) in others_gb.iter().enumerate() {
            let at_ms = 500 * line;
            writeln!(
                script,
                r#"{{"at_ms":{at_ms},"total_bytes":{},"others_bytes":{}}}"#,
                16 * GB,
                others * GB
            )
            .expect("a string");
        }
        std::fs::write(&path, script).expect("a writable folder");
        let by = ScriptBy::Decision;
        let machine = Machine {
            script: Some(MemoryScript { path, by }),
            ..Machine::default()
        };
        MemoryGate::open(&machine, &Device::Cpu).expect("a script")
    }

    #[test]
    fn an_evaluation_waits_while_memory_is_critical_and_frees_its_own() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut gate = gate(&folder, &[4, 16, 16, 16, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
        let (progress, freed) = (Progress::default(), Cell::new(0));
        let free = || freed.set(freed.get() + 1);
        assert_eq!(gate.next_micro_batch(&progress, free), MICRO_BATCH);
        assert_eq!(freed.get(), 0);
        // Once memory was free for two seconds.
        assert_eq!(gate.next_micro_batch(&progress, free), MICRO_BATCH);
        assert!(freed.get() >= 3, "memory was freed {} times", freed.get());
    }

    #[test]
    fn a_cancelled_evaluation_does_not_wait() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut gate = gate(&folder, &[16]);
        let progress = Progress::default();
        progress.cancel();
        let free = || panic!("it has not waited");
        assert_eq!(gate.next_micro_batch(&progress, free), 1);
    }

    #[test]
    fn an_evaluation_that_needs_the_memory_itself_goes_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("script.jsonl");
        let line = |at_ms| {
            let bytes = 16 * GB;
            format!(r#"{{"at_ms":{at_ms},"total_bytes":{bytes},"others_bytes":{bytes}}}"#)
        };
        std::fs::write(&path, [line(0), line(61_000)].join("\n")).expect("a writable folder");
        let by = ScriptBy::Decision;
        let machine = Machine {
            script: Some(MemoryScript { path, by }),
            ..Machine::default()
        };
        let mut gate = MemoryGate::open(&machine, &Device::Cpu).expect("a script");
        assert_eq!(gate.next_micro_batch(&Progress::default(), || {}), 1);
    }
}
