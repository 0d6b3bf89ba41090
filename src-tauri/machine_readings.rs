//! The memory of this machine for the status bar, read at most once per second. While training
//! runs in this process, the samples of its monitor are shown instead, so that the bar and the
//! charts agree.

use crate::machine_info;
use crate::window_types::MachineView;
use pressure::{
    ControllerState, Level, LevelTracker, MemorySample, MemorySource, Policy, budget_bytes,
    pressure,
};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use trainer::Machine;

/// A sample is shown for this long.
pub const FRESH: Duration = Duration::from_secs(1);

/// A memory sample with its level and pressure.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reported {
    pub sample: MemorySample,
    /// Its level, with hysteresis.
    pub level: Level,
    /// Its pressure, `0.0..=1.0`.
    pub pressure: f64,
}

/// Reads the machine on request.
pub struct Readings(Mutex<Reader>);

struct Reader {
    machine: Machine,
    /// Opened with the first sample, so that the window does not wait for it.
    source: Option<Box<dyn MemorySource>>,
    level: LevelTracker,
    last: Option<(Instant, Reported)>,
}

impl Readings {
    /// Without an open source.
    pub fn new(machine: Machine) -> Self {
        Readings(Mutex::new(Reader {
            machine,
            source: None,
            level: LevelTracker::default(),
            last: None,
        }))
    }

    /// The machine now, at most one second old; all zero if it cannot be read.
    pub fn now(&self) -> Reported {
        let mut reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, messages)) = reader.last.filter(|(at, _)| at.elapsed() < FRESH) {
            return messages;
        }
        let messages = reader.read().unwrap_or_default();
        reader.last = Some((Instant::now(), messages));
        messages
    }
}

impl Reader {
    fn read(&mut self) -> Option<Reported> {
        if self.source.is_none() {
            self.source = self.machine.open().ok();
        }
        let sample = self.source.as_mut()?.sample().ok()?;
        let pressure = pressure(&sample).value;
        Some(Reported {
            sample,
            level: self.level.update(sample.at_ms, pressure),
            pressure,
        })
    }
}

impl Reported {
    /// What the status bar shows.
    pub fn view(&self) -> MachineView {
        let sample = &self.sample;
        MachineView {
            version: 0,
            level: self.level,
            pressure: self.pressure,
            total_bytes: sample.total_bytes,
            used_bytes: sample.total_bytes.saturating_sub(sample.available_bytes),
            system_bytes: sample.system_bytes,
            own_bytes: sample.own_bytes,
            others_bytes: sample.others_bytes(),
            swap_bytes: sample.swap_used_bytes,
            device: String::new(),
            device_check: None,
            active: None,
            queued: 0,
            name: machine_info::chip().to_owned(),
        }
    }

    /// The budget line before anything trains, in bytes, on top of the memory that others use.
    pub fn budget_line_bytes(&self) -> u64 {
        let sample = &self.sample;
        sample.system_bytes + sample.others_bytes() + self.budget_bytes()
    }

    /// What Ebb may use beyond its footprint, in bytes.
    pub fn available_to_ebb_bytes(&self) -> u64 {
        self.budget_bytes().saturating_sub(self.sample.own_bytes)
    }

    fn budget_bytes(&self) -> u64 {
        let state = ControllerState::default();
        budget_bytes(&Policy::default(), &state, &self.sample, 0)
    }
}
