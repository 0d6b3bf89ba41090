//! The pressure of one sample, and the level that follows from the pressures of the last seconds.

use crate::memory_sample::{Component, Level, MemorySample};
use crate::policy::{
    COMPRESSOR_EDGES, CRITICAL_PRESSURE, DEVICE_EDGES, DISK_EDGES_GB, GB, HEADROOM_EDGES,
    LEAVE_LEVEL_AFTER_MS, LEVEL_HYSTERESIS, STALL_EDGES, WARNING_PRESSURE,
};
use serde::{Deserialize, Serialize};

/// The pressure of one sample and the component it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// `0.0..=1.0`: a warning from 0.5, critical from 0.8.
    pub value: f64,
    /// The highest component.
    pub cause: Component,
}

impl Reading {
    /// The level of this reading alone, without hysteresis.
    pub fn level(&self) -> Level {
        match self.value {
            v if v >= CRITICAL_PRESSURE => Level::Critical,
            v if v >= WARNING_PRESSURE => Level::Warning,
            _ => Level::Normal,
        }
    }
}

/// The pressure of one sample: the highest component, but at least 0.5 at the kernel's warning
/// level and 0.8 at its critical level. Of two equal components the one listed first is the cause.
pub fn pressure(sample: &MemorySample) -> Reading {
    let device = fraction(sample.device_allocated_bytes, sample.device_limit_bytes);
    let compressor = sample
        .compressor_fraction
        .map_or(0.0, |c| on_curve(c, COMPRESSOR_EDGES));
    let stall = sample
        .stall_fraction
        .map_or(0.0, |s| on_curve(s, STALL_EDGES));
    let disk = sample
        .disk_free_bytes
        .map_or(0.0, |free| on_curve(free as f64 / GB as f64, DISK_EDGES_GB));
    let kernel_level = match sample.kernel_level {
        Some(Level::Critical) => CRITICAL_PRESSURE,
        Some(Level::Warning) => WARNING_PRESSURE,
        Some(Level::Normal) | None => 0.0,
    };
    let used = fraction(sample.used_bytes(), sample.total_bytes);
    let components = [
        (on_curve(used, HEADROOM_EDGES), Component::Headroom),
        (on_curve(device, DEVICE_EDGES), Component::Device),
        (compressor.max(stall), Component::Kernel),
        (disk, Component::Disk),
        (kernel_level, Component::System),
    ];
    let mut highest = Reading::default();
    for (value, cause) in components {
        if value > highest.value {
            highest = Reading { value, cause };
        }
    }
    highest
}

/// The pressure without the disk. A full disk is worth a warning, but a smaller micro-batch would
/// not free any of it.
fn memory_pressure(sample: &MemorySample) -> Reading {
    pressure(&MemorySample {
        disk_free_bytes: None,
        ..*sample
    })
}

/// Pressure at `x`, linear between the edges, which have the pressures 0, 0.5, 0.8 and 1. Edges
/// rise or fall.
fn on_curve(x: f64, edges: [f64; 4]) -> f64 {
    let levels = [0.0, WARNING_PRESSURE, CRITICAL_PRESSURE, 1.0];
    let rising = edges[3] > edges[0];
    let past = |edge: f64| if rising { x >= edge } else { x <= edge };
    if past(edges[3]) {
        return 1.0;
    }
    (0..3).rev().find(|&i| past(edges[i])).map_or(0.0, |i| {
        levels[i] + (levels[i + 1] - levels[i]) * (x - edges[i]) / (edges[i + 1] - edges[i])
    })
}

fn fraction(part: u64, total: u64) -> f64 {
    if total == 0 {
        0.0
    } else {
        part as f64 / total as f64
    }
}

/// A level with hysteresis: entered at once, left only 0.05 below the pressure at which it began
/// and after 2 s there.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelTracker {
    level: Level,
    below_critical_since_ms: Option<u64>,
    below_warning_since_ms: Option<u64>,
}

impl LevelTracker {
    /// The present level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Takes the pressure `value` at the time `at_ms` and returns the level.
    pub fn update(&mut self, at_ms: u64, value: f64) -> Level {
        let since = |before: Option<u64>, below: bool| below.then(|| before.unwrap_or(at_ms));
        let below_critical = value < CRITICAL_PRESSURE - LEVEL_HYSTERESIS;
        let below_warning = value < WARNING_PRESSURE - LEVEL_HYSTERESIS;
        self.below_critical_since_ms = since(self.below_critical_since_ms, below_critical);
        self.below_warning_since_ms = since(self.below_warning_since_ms, below_warning);
        let left = |since: Option<u64>| {
            since.is_some_and(|since| at_ms.saturating_sub(since) >= LEAVE_LEVEL_AFTER_MS)
        };
        let reading = Reading {
            value,
            ..Reading::default()
        };
        self.level = self.level.max(reading.level());
        if self.level == Level::Critical && left(self.below_critical_since_ms) {
            self.level = Level::Warning;
        }
        if self.level == Level::Warning && left(self.below_warning_since_ms) {
            self.level = Level::Normal;
        }
        self.level
    }
}

/// What the controller remembers of the signal.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct State {
    /// The level with hysteresis, disk included.
    pub(crate) level: LevelTracker,
    /// The newest pressure, disk included.
    pub(crate) reading: Reading,
    /// The newest pressure of memory alone, which the rules go by.
    pub(crate) memory: Reading,
}

impl State {
    /// Takes the newest sample.
    pub(crate) fn record(&mut self, sample: &MemorySample) {
        self.reading = pressure(sample);
        self.memory = memory_pressure(sample);
        self.level.update(sample.at_ms, self.reading.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> MemorySample {
        MemorySample {
            total_bytes: 100 * GB,
            available_bytes: 100 * GB,
            ..Default::default()
        }
    }

    fn check(sample: MemorySample, value: f64, cause: Component) {
        let got = pressure(&sample);
        assert!(
            (got.value - value).abs() < 1e-9 && got.cause == cause,
            "{got:?}, not {value} {cause:?}"
        );
    }

    // tidy: table
    #[test]
    fn every_component_reaches_its_thresholds() {
        for (used, value) in [(0, 0.0), (85, 0.5), (89, 0.65), (93, 0.8), (100, 1.0)] {
            check(
                MemorySample {
                    available_bytes: (100 - used) * GB,
                    ..sample()
                },
                value,
                Component::Headroom,
            );
        }
        for (allocated, value) in [(85, 0.5), (90, 0.65), (95, 0.8), (100, 1.0), (130, 1.0)] {
            let device = MemorySample {
                device_allocated_bytes: allocated,
                device_limit_bytes: 100,
                ..sample()
            };
            check(device, value, Component::Device);
        }
        for (compressor, value) in [
            (0.25, 0.25),
            (0.50, 0.5),
            (0.657, 0.8),
            (0.82, 1.0),
            (0.9, 1.0),
        ] {
            check(
                MemorySample {
                    compressor_fraction: Some(compressor),
                    ..sample()
                },
                value,
                Component::Kernel,
            );
        }
        for (stall, value) in [
            (0.025, 0.25),
            (0.05, 0.5),
            (0.20, 0.8),
            (0.40, 0.9),
            (0.60, 1.0),
        ] {
            check(
                MemorySample {
                    stall_fraction: Some(stall),
                    ..sample()
                },
                value,
                Component::Kernel,
            );
        }
        for (mb, value) in [
            (12 << 10, 0.25),
            (8 << 10, 0.5),
            (5 << 10, 0.65),
            (2 << 10, 0.8),
            (256, 1.0),
            (0, 1.0),
        ] {
            check(
                MemorySample {
                    disk_free_bytes: Some(mb << 20),
                    ..sample()
                },
                value,
                Component::Disk,
            );
        }
        check(
            MemorySample {
                disk_free_bytes: Some(900 * GB),
                ..sample()
            },
            0.0,
            Component::Headroom,
        );
    }

    #[test]
    fn the_kernel_level_is_only_a_lower_bound() {
        let at = |available, level| MemorySample {
            available_bytes: available * GB,
            kernel_level: Some(level),
            ..sample()
        };
        check(
            at(90, Level::Normal),
            0.5 * 10.0 / 85.0,
            Component::Headroom,
        );
        check(at(90, Level::Warning), 0.5, Component::System);
        check(at(90, Level::Critical), 0.8, Component::System);
        check(at(7, Level::Warning), 0.8, Component::Headroom);
    }

    #[test]
    fn a_full_disk_is_not_memory_pressure() {
        let full = MemorySample {
            disk_free_bytes: Some(0),
            ..sample()
        };
        assert_eq!(pressure(&full).level(), Level::Critical);
        assert_eq!(memory_pressure(&full).level(), Level::Normal);
    }

    #[test]
    fn a_sample_without_readings_has_no_pressure() {
        check(MemorySample::default(), 0.0, Component::Headroom);
    }

    #[test]
    fn a_level_is_entered_at_once_and_left_late() {
        use Level::{Critical, Normal, Warning};
        let script = [
            (0, 0.10, Normal),
            (100, 0.50, Warning),
            (200, 0.46, Warning),
            (5_000, 0.46, Warning), // not .05 below
            (5_100, 0.44, Warning),
            (7_000, 0.44, Warning),
            (7_100, 0.44, Normal), // 2 s below
            (8_000, 0.85, Critical),
            (8_100, 0.60, Critical),
            (9_000, 0.76, Critical), // interrupted: starts again
            (9_100, 0.60, Critical),
            (11_000, 0.60, Critical),
            (11_100, 0.60, Warning),
            (12_000, 0.90, Critical),
            (12_100, 0.10, Critical),
            (14_100, 0.10, Normal), // both levels at once
        ];
        let mut tracker = LevelTracker::default();
        for (at_ms, value, level) in script {
            assert_eq!(
                tracker.update(at_ms, value),
                level,
                "at {at_ms} ms with {value}"
            );
        }
    }
}
