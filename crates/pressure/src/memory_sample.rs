//! One reading of the machine's memory, in bytes and milliseconds.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// The machine's memory at one instant.
///
/// "Available" is what a process may take without forcing other apps' memory out: on macOS free +
/// external + purgeable pages, on Linux `MemAvailable` or the tighter headroom of the process's
/// control group. Unknown fields are ignored, so that an older Ebb opens the events of a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct MemorySample {
    /// Milliseconds since the source was opened (scripted: the script's clock). The logic has no
    /// other clock.
    pub at_ms: u64,
    /// Physical memory of the machine, or the limit of the control group if that is smaller.
    pub total_bytes: u64,
    /// Memory that Ebb could take now without hurting other apps.
    pub available_bytes: u64,
    /// This process's footprint (`phys_footprint` on macOS, resident set on Linux).
    pub own_bytes: u64,
    /// Memory that no app can free: wired pages on macOS, kernel memory on Linux. 0 if unknown.
    pub system_bytes: u64,
    /// Live bytes as counted by the tape and the trainer.
    pub device_live_bytes: u64,
    /// Bytes that this process has allocated according to the GPU driver. 0 on the CPU.
    pub device_allocated_bytes: u64,
    /// The GPU's recommended working set. 0 without one.
    pub device_limit_bytes: u64,
    /// Swap in use by the whole machine.
    pub swap_used_bytes: u64,
    /// The kernel's own pressure level, if it has one.
    pub kernel_level: Option<Level>,
    /// Fraction of the last second in which a process waited for memory (Linux PSI `some`),
    /// `0.0..=1.0`.
    pub stall_fraction: Option<f64>,
    /// Fraction of non-wired memory held by the compressor (macOS), `0.0..=1.0`.
    pub compressor_fraction: Option<f64>,
    /// Free space on the disk that holds swap.
    pub disk_free_bytes: Option<u64>,
    /// The machine's thermal state (macOS). A hot machine is slow even with free memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub thermal: Option<Thermal>,
    /// Whether low power mode is on (macOS). It makes micro-batches slower.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub low_power: Option<bool>,
}

/// The machine's thermal state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Thermal {
    /// Normal.
    Nominal,
    /// Slightly elevated: the fans are audible.
    Fair,
    /// High: the processors are slowed down.
    Serious,
    /// Too high: the machine must cool down.
    Critical,
}

impl MemorySample {
    /// Memory used by other apps: total less available, less Ebb, less the system's own.
    pub fn others_bytes(&self) -> u64 {
        self.others_and_system_bytes()
            .saturating_sub(self.system_bytes)
    }

    /// Memory used by everything except Ebb.
    pub(crate) fn others_and_system_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.own_bytes)
    }

    /// Memory in use: total less available.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.available_bytes)
    }

    /// Whether the machine's memory could not be read at all.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.total_bytes == 0 && self.available_bytes == 0
    }
}

/// A pressure level: the kernel's, or Ebb's own with hysteresis.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, TS,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Memory is plentiful.
    #[default]
    Normal,
    /// Other apps begin to slow down.
    Warning,
    /// The system suffers, or will within a second.
    Critical,
}

/// The highest part of the pressure signal, or another source of a change: the cause shown to the
/// user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// `1 - available / total`.
    #[default]
    Headroom,
    /// Device allocation relative to the recommended working set.
    Device,
    /// The compressor's share (macOS) or the memory stall (Linux).
    Kernel,
    /// Free disk space.
    Disk,
    /// The kernel's own level, if it is above every component.
    System,
    /// Not part of the signal: the user asked for it.
    User,
    /// Not part of the signal: a larger micro-batch would be no faster.
    Speed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_a_newer_version_can_be_read() {
        let json = r#"{"at_ms":5,"total_bytes":9,"a_new_reading":1}"#;
        let sample: MemorySample = serde_json::from_str(json).expect("unknown fields are ignored");
        assert_eq!((sample.at_ms, sample.total_bytes), (5, 9));
    }
}
