//! What a run needs from the machine: the source of its memory samples, the states of its power,
//! and how cached memory is released. A script can replace the memory samples.

use crate::error::Result;
use crate::shared_device::{SharedDevice, device_readings};
use candle_core::Device;
use pressure::source::scripted::{Advance, Scripted};
use pressure::{
    BeforeSleep, MemorySource, PowerSource, SleepWatch, open_power_source, open_sleep_watch,
    own_footprint_bytes, source, take_own_peak_bytes,
};
use std::path::PathBuf;
use std::time::Instant;
use tape::counting_allocator::Purge;

/// How a memory script advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScriptBy {
    /// With the clock.
    #[default]
    Time,
    /// One line per decision.
    Decision,
}

/// A script of the memory that other apps use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryScript {
    /// JSON lines file.
    pub path: PathBuf,
    /// How it advances.
    pub by: ScriptBy,
}

/// What the memory controller needs from the machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Replaces the real memory samples.
    pub script: Option<MemoryScript>,
    /// Returns the allocator's cached memory to the system.
    pub purge: Purge,
    /// Most bytes that one micro-batch may save for its backward pass. A larger one fails with the
    /// out-of-memory error of a small device. For tests.
    pub micro_batch_limit_bytes: Option<u64>,
    /// Opens the source of the power's state.
    pub power: fn() -> Box<dyn PowerSource>,
    /// Watches for the machine's sleep.
    pub sleep: fn(BeforeSleep) -> Option<Box<dyn SleepWatch>>,
    /// File with the results of passed device checks.
    pub device_check_path: Option<PathBuf>,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            script: None,
            micro_batch_limit_bytes: None,
            device_check_path: None,
            purge: || {},
            power: open_power_source,
            sleep: open_sleep_watch,
        }
    }
}

impl Machine {
    /// Opens a memory source that does not include any GPU.
    pub fn open(&self) -> Result<Box<dyn MemorySource>> {
        self.source(&SharedDevice::new(&Device::Cpu), 0)
    }

    /// Opens the memory source for a run on this device. `idle_bytes` are mapped for this process
    /// but never touched; they do not count as used.
    pub(crate) fn source(
        &self,
        device: &SharedDevice,
        idle_bytes: u64,
    ) -> Result<Box<dyn MemorySource>> {
        let readings = device_readings(device, idle_bytes);
        let Some(script) = &self.script else {
            return Ok(source::open(readings));
        };
        let advance = match script.by {
            ScriptBy::Decision => Advance::Sample,
            ScriptBy::Time => {
                let begin = Instant::now();
                Advance::Time(Box::new(move || begin.elapsed().as_millis() as u64))
            }
        };
        Ok(Box::new(
            Scripted::open(&script.path, advance, own_footprint_bytes)?
                .with_peak(take_own_peak_bytes)
                .with_device(readings),
        ))
    }
}
