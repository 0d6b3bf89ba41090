//! How far estimates were off on this machine. At the end of each run, its highest footprint is
//! compared with its estimate. Later estimates on the same kind of device are multiplied by what
//! the last runs needed, and state the interval in which their footprints were. Runs in the window
//! are apart, because the window takes memory too.

use crate::paths::estimates_path;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use trainer::DeviceKind;

/// Comparisons that count, for each kind of device.
const REMEMBERED: usize = 20;
/// Comparisons that are assumed before there are any: estimates are right, or 10 % too low or too
/// high. They outweigh a single run that is far off.
const ASSUMED: [f64; 3] = [0.9, 1.0, 1.1];
/// Bounds of the factor.
const FACTORS: [f64; 2] = [0.8, 1.5];
/// A comparison beyond these is an error, not a measurement.
const POSSIBLE: [f64; 2] = [0.2, 5.0];
/// Fraction of the comparisons that are outside of the interval, on each side.
const OUTSIDE: f64 = 0.1;
/// Most bytes of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where a run trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunsOn {
    /// The kind of device.
    pub device: DeviceKind,
    /// Whether the process that trains also shows the window.
    pub in_window: bool,
}

impl RunsOn {
    /// A run in the terminal.
    pub fn terminal(device: DeviceKind) -> Self {
        RunsOn {
            device,
            in_window: false,
        }
    }

    /// "cpu", or "cpu window".
    fn name(self) -> String {
        let window = if self.in_window { " window" } else { "" };
        format!("{}{window}", self.device.name())
    }
}

/// The comparisons of one machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EstimateHistory {
    /// Oldest first.
    runs: Vec<Comparison>,
}

/// The highest footprint of a run, divided by its estimate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Comparison {
    device: String,
    ratio: f64,
}

/// What to multiply an estimate by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Correction {
    /// For the footprint to expect.
    pub factor: f64,
    /// For the least footprint to expect.
    pub low: f64,
    /// For the largest footprint to expect.
    pub high: f64,
    /// Number of runs that were compared.
    pub runs: usize,
}

impl Correction {
    /// The least and the largest footprint to expect, as multiples of the corrected estimate.
    pub fn interval(&self) -> [f64; 2] {
        [self.low, self.high].map(|bound| bound / self.factor)
    }
}

impl EstimateHistory {
    /// Reads a file. One that is missing or damaged has no comparisons.
    pub fn load(path: &Path) -> Self {
        let text = disk::read_limited(path, MAX_FILE_BYTES).ok();
        let read = text.and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        let mut history = read.unwrap_or_default();
        history.runs.retain(Comparison::is_possible);
        history
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            disk::create_dir_all(folder)?;
        }
        disk::remove_drafts_of(path);
        disk::write_atomic(path, &serde_json::to_vec_pretty(self)?)
    }

    /// Adds a run that needed `measured_bytes` instead of `estimated_bytes`, as they were estimated
    /// without a correction. Returns `false` if that is impossible.
    pub fn add(&mut self, on: RunsOn, estimated_bytes: u64, measured_bytes: u64) -> bool {
        let comparison = Comparison {
            device: on.name(),
            ratio: measured_bytes as f64 / estimated_bytes as f64,
        };
        if !comparison.is_possible() {
            return false;
        }
        let same = |other: &Comparison| other.device == comparison.device;
        if self.runs.iter().filter(|other| same(other)).count() >= REMEMBERED
            && let Some(oldest) = self.runs.iter().position(same)
        {
            self.runs.remove(oldest);
        }
        self.runs.push(comparison);
        true
    }

    /// The correction that the file in Ebb's home gives for runs like these.
    pub fn saved_correction(on: RunsOn) -> Correction {
        EstimateHistory::load(&estimates_path()).correction(on)
    }

    /// The newest ratios of runs like these.
    fn newest_ratios(&self, on: RunsOn) -> Vec<f64> {
        let name = on.name();
        let runs = self.runs.iter().filter(|run| run.device == name);
        runs.rev().take(REMEMBERED).map(|run| run.ratio).collect()
    }

    /// The correction of estimates for runs like these. Before the window has trained, it is that
    /// of the terminal.
    pub fn correction(&self, on: RunsOn) -> Correction {
        let mut measured = self.newest_ratios(on);
        if measured.is_empty() {
            measured = self.newest_ratios(RunsOn {
                in_window: false,
                ..on
            });
        }
        let mut ratios: Vec<f64> = measured.iter().copied().chain(ASSUMED).collect();
        ratios.sort_by(f64::total_cmp);
        let bounded = |ratio: f64| ratio.clamp(FACTORS[0], FACTORS[1]);
        let factor = bounded(median(&ratios));
        let outside = (OUTSIDE * ratios.len() as f64) as usize;
        Correction {
            factor,
            low: ratios[outside].clamp(POSSIBLE[0], factor),
            high: ratios[ratios.len() - 1 - outside].clamp(factor, POSSIBLE[1]),
            runs: measured.len(),
        }
    }
}

impl Comparison {
    fn is_possible(&self) -> bool {
        self.ratio.is_finite() && (POSSIBLE[0]..=POSSIBLE[1]).contains(&self.ratio)
    }
}

/// The middle value of a sorted list that is not empty.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const CPU: RunsOn = RunsOn {
        device: DeviceKind::Cpu,
        in_window: false,
    };
    const WINDOW: RunsOn = RunsOn {
        in_window: true,
        ..CPU
    };

    fn learned(ratios: &[u64]) -> Correction {
        let mut history = EstimateHistory::default();
        for percent in ratios {
            history.add(CPU, 100 * MB, percent * MB);
        }
        history.correction(CPU)
    }

    #[test]
    fn without_runs_an_estimate_is_right_within_a_tenth() {
        let expected = Correction {
            factor: 1.0,
            low: 0.9,
            high: 1.1,
            runs: 0,
        };
        assert_eq!(learned(&[]), expected);
    }

    #[test]
    fn the_factor_is_learned_and_bounded() {
        let after_ten = learned(&[125; 10]);
        assert_eq!((after_ten.factor, after_ten.runs), (1.25, 10));
        assert!(
            after_ten.low <= 1.0 && after_ten.high >= 1.25,
            "{after_ten:?}"
        );
        assert!(
            after_ten.interval()[0] < 1.0 && after_ten.interval()[1] >= 1.0,
            "{after_ten:?}"
        );
        assert_eq!(learned(&[300; 20]).factor, FACTORS[1]);
        assert_eq!(learned(&[30; 20]).factor, FACTORS[0]);
    }

    #[test]
    fn one_run_that_is_far_off_changes_little() {
        assert!(learned(&[400]).factor <= 1.05);
        let mut ratios = [105; 11];
        ratios[3] = 400;
        assert_eq!(learned(&ratios).factor, 1.05);
        assert_eq!(
            learned(&ratios).high,
            1.1,
            "the outlier is outside of the interval"
        );
    }

    #[test]
    fn impossible_comparisons_do_not_count() {
        let mut history = EstimateHistory::default();
        for (estimated, measured) in [(0, MB), (MB, 0), (MB, u64::MAX), (0, 0)] {
            assert!(!history.add(CPU, estimated, measured));
        }
        assert_eq!(history, EstimateHistory::default());
    }

    #[test]
    fn devices_are_apart_and_only_the_newest_runs_count() {
        let mut history = EstimateHistory::default();
        for percent in [130; 30].into_iter().chain([90; 20]) {
            history.add(CPU, 100 * MB, percent * MB);
        }
        assert_eq!(history.correction(CPU).factor, 0.9);
        let metal = RunsOn::terminal(DeviceKind::Metal);
        assert_eq!(history.correction(metal).runs, 0);
        assert_eq!(history.runs.len(), REMEMBERED);
    }

    #[test]
    fn the_window_learns_from_its_own_runs_once_it_has_trained() {
        let mut history = EstimateHistory::default();
        for _ in 0..10 {
            history.add(CPU, 100 * MB, 95 * MB);
        }
        assert_eq!(history.correction(WINDOW), history.correction(CPU));
        for _ in 0..10 {
            history.add(WINDOW, 100 * MB, 140 * MB);
        }
        assert_eq!(history.correction(WINDOW).factor, 1.4);
        assert_eq!(history.correction(CPU).factor, 0.95);
    }

    #[test]
    fn a_file_is_read_back_and_a_damaged_one_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("home/estimates.json");
        let mut history = EstimateHistory::default();
        assert_eq!(EstimateHistory::load(&path), history, "it is missing");
        history.add(CPU, 100 * MB, 120 * MB);
        history.save(&path).expect("it can be written");
        assert_eq!(EstimateHistory::load(&path), history);
        for text in ["", "{\"runs\":[{\"device\":\"cpu\",\"ratio\":1e9}]}", "[1]"] {
            std::fs::write(&path, text).expect("it can be written");
            assert_eq!(EstimateHistory::load(&path), EstimateHistory::default());
        }
    }
}
