//! This machine as the status bar shows it: one source of readings, opened once, asked at most once
//! a second. While a training runs here its own readings are shown instead, so that bar and charts
//! never disagree.

use crate::view::MachineView;
use pressure::{
    ControllerState, Level, LevelTracker, MemorySample, MemorySource, Policy, budget_bytes,
    pressure,
};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use trainer::Machine;

/// A reading is shown for so long.
const FRESH: Duration = Duration::from_secs(1);

/// One reading with what it means.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reported {
    /// The reading.
    pub sample: MemorySample,
    /// Its level, with hysteresis.
    pub level: Level,
    /// Its pressure, `0.0..=1.0`.
    pub pressure: f64,
}

/// The machine, read on request.
pub struct Readings(Mutex<Reader>);

struct Reader {
    machine: Machine,
    /// Opened with the first reading: the window must not wait for it.
    source: Option<Box<dyn MemorySource>>,
    level: LevelTracker,
    last: Option<(Instant, Reported)>,
}

impl Readings {
    /// Opens nothing yet.
    pub fn of(machine: Machine) -> Self {
        Readings(Mutex::new(Reader {
            machine,
            source: None,
            level: LevelTracker::default(),
            last: None,
        }))
    }

    /// The machine now, at most a second old; all zero where it cannot be read.
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
    /// What the status bar shows of it.
    pub fn view(&self) -> MachineView {
        let sample = &self.sample;
        MachineView {
            level: self.level,
            pressure: self.pressure,
            total_bytes: sample.total_bytes,
            used_bytes: sample.total_bytes.saturating_sub(sample.available_bytes),
            system_bytes: sample.system_bytes,
            own_bytes: sample.own_bytes,
            others_bytes: sample.others_bytes(),
            swap_bytes: sample.swap_used_bytes,
            device_check: None,
            name: name().to_owned(),
        }
    }

    /// Where the budget line stands on top of what everybody else uses, in bytes, before anything
    /// trains.
    pub fn budget_line_bytes(&self) -> u64 {
        let sample = &self.sample;
        let budget = budget_bytes(&Policy::default(), &ControllerState::default(), sample, 0);
        sample.system_bytes + sample.others_bytes() + budget
    }
}

/// The chip's name, asked once: Linux tells it in a file, a Mac by a command. Empty where neither
/// does.
fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| from_cpuinfo().or_else(from_sysctl).unwrap_or_default())
}

fn from_cpuinfo() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn from_sysctl() -> Option<String> {
    let asked = Command::new("/usr/sbin/sysctl")
        .args(["-n", "machdep.cpu.brand_string"])
        .output()
        .ok()?;
    Some(String::from_utf8(asked.stdout).ok()?.trim().to_owned())
}
