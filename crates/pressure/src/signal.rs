//! One pressure out of one sample, and a level out of the pressures of the last seconds. Knows no budget and no batch.

use crate::policy::GB;
use crate::sample::{Component, Level, MemorySample};
use serde::{Deserialize, Serialize};

/// Pressure at which a level begins: `(warning, critical)`.
const EDGES: (f64, f64) = (0.5, 0.8);
/// A level is left this far below its edge.
const HYSTERESIS: f64 = 0.05;
/// And only after this long, milliseconds.
const LEAVE_AFTER_MS: u64 = 2_000;

/// Where the curve of a component passes `.5`, `.8` and `1`. It begins at 0 with pressure 0.
struct Curve {
    warning: f64,
    critical: f64,
    end: f64,
}

/// Share of memory in use.
const HEADROOM: Curve = Curve {
    warning: 0.85,
    critical: 0.93,
    end: 1.0,
};
/// Device allocation as a share of the recommended working set.
const DEVICE: Curve = Curve {
    warning: 0.85,
    critical: 0.95,
    end: 1.0,
};
/// Compressor's share of non-wired memory: where the macOS kernel says warning, critical, and throttles hard.
const COMPRESSOR: Curve = Curve {
    warning: 0.50,
    critical: 0.657,
    end: 0.82,
};
/// Share of the last second in which somebody waited for memory.
const STALL: Curve = Curve {
    warning: 0.05,
    critical: 0.20,
    end: 0.60,
};
/// Free disk, GB, falling: pressure 0 at 16, .5 at 8, .8 at 2, 1 at .25. Swap and checkpoints need it.
const DISK_GB: [f64; 4] = [16.0, 8.0, 2.0, 0.25];

impl Curve {
    fn at(&self, x: f64) -> f64 {
        piecewise(x, [0.0, self.warning, self.critical, self.end])
    }
}

/// Linear between `knots`, which carry the pressures 0, .5, .8 and 1. `knots` rise or fall.
fn piecewise(x: f64, knots: [f64; 4]) -> f64 {
    let levels = [0.0, EDGES.0, EDGES.1, 1.0];
    let rising = knots[3] > knots[0];
    let past = |knot: f64| if rising { x >= knot } else { x <= knot };
    if past(knots[3]) {
        return 1.0;
    }
    (0..3).rev().find(|&i| past(knots[i])).map_or(0.0, |i| {
        levels[i] + (levels[i + 1] - levels[i]) * (x - knots[i]) / (knots[i + 1] - knots[i])
    })
}

/// The pressure of one sample and the component it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// `0.0..=1.0`: from .5 a warning, from .8 critical.
    pub value: f64,
    /// The highest component.
    pub cause: Component,
}

impl Reading {
    /// The level of this reading alone, without hysteresis.
    pub fn level(&self) -> Level {
        match self.value {
            v if v >= EDGES.1 => Level::Critical,
            v if v >= EDGES.0 => Level::Warning,
            _ => Level::Normal,
        }
    }
}

/// The pressure of one sample: the highest component, at least .5 at the kernel's warning and .8 at its critical level.
pub fn pressure(sample: &MemorySample) -> Reading {
    let kernel = sample.compressor_fraction.map_or(0.0, |c| COMPRESSOR.at(c));
    let stall = sample.stall_fraction.map_or(0.0, |s| STALL.at(s));
    let disk = sample
        .disk_free_bytes
        .map_or(0.0, |free| piecewise(free as f64 / GB as f64, DISK_GB));
    let floor = match sample.kernel_level {
        Some(Level::Critical) => EDGES.1,
        Some(Level::Warning) => EDGES.0,
        Some(Level::Normal) | None => 0.0,
    };
    let used = sample.total_bytes.saturating_sub(sample.available_bytes);
    // In order of what a user would look at first: of two equal components the earlier one speaks.
    let components = [
        (
            HEADROOM.at(share(used, sample.total_bytes)),
            Component::Headroom,
        ),
        (
            DEVICE.at(share(
                sample.device_allocated_bytes,
                sample.device_limit_bytes,
            )),
            Component::Device,
        ),
        (kernel.max(stall), Component::Kernel),
        (disk, Component::Disk),
        (floor, Component::System),
    ];
    components
        .into_iter()
        .fold(Reading::default(), |highest, (value, cause)| {
            if value > highest.value {
                Reading { value, cause }
            } else {
                highest
            }
        })
}

/// The same without the disk: a full disk is worth a warning, but a smaller micro-batch would not free any of it.
pub(crate) fn memory_pressure(sample: &MemorySample) -> Reading {
    pressure(&MemorySample {
        disk_free_bytes: None,
        ..*sample
    })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// A level with memory: entered at once, left only .05 below its edge and after 2 s there. Time comes with the sample.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelTracker {
    level: Level,
    below_critical_since_ms: Option<u64>,
    below_warning_since_ms: Option<u64>,
}

impl LevelTracker {
    /// The level now.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Takes the pressure `value` of the instant `at_ms` and gives the level.
    pub fn update(&mut self, at_ms: u64, value: f64) -> Level {
        let since = |kept: Option<u64>, below: bool| below.then(|| kept.unwrap_or(at_ms));
        self.below_critical_since_ms =
            since(self.below_critical_since_ms, value < EDGES.1 - HYSTERESIS);
        self.below_warning_since_ms =
            since(self.below_warning_since_ms, value < EDGES.0 - HYSTERESIS);
        let left =
            |since: Option<u64>| since.is_some_and(|s| at_ms.saturating_sub(s) >= LEAVE_AFTER_MS);
        self.level = self.level.max(
            Reading {
                value,
                ..Reading::default()
            }
            .level(),
        );
        if self.level == Level::Critical && left(self.below_critical_since_ms) {
            self.level = Level::Warning;
        }
        if self.level == Level::Warning && left(self.below_warning_since_ms) {
            self.level = Level::Normal;
        }
        self.level
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

    #[test]
    fn every_component_passes_its_thresholds() {
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
    fn the_kernels_level_is_a_floor_and_no_more() {
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
    fn a_full_disk_is_no_memory_pressure() {
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
            (9_000, 0.76, Critical), // interrupted: begins anew
            (9_100, 0.60, Critical),
            (11_000, 0.60, Critical),
            (11_100, 0.60, Warning),
            (12_000, 0.90, Critical),
            (12_100, 0.10, Critical),
            (14_100, 0.10, Normal), // both at once
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
