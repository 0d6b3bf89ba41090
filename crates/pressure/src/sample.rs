//! One reading of the machine's memory, in bytes and milliseconds. Knows nothing about where a reading comes from
//! or what is decided on it.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// What the machine's memory looked like at one instant.
///
/// "Available" is what may be taken without forcing other apps' memory out: on macOS free + external + purgeable,
/// on Linux `MemAvailable` or the tighter headroom of the own control group.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, TS)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySample {
    /// Milliseconds since the source was opened (scripted: the script's own clock). Time enters the logic here only.
    pub at_ms: u64,
    /// Physical memory of the machine, or the limit of the own group where that is smaller.
    pub total_bytes: u64,
    /// What Ebb could take now without hurting anybody.
    pub available_bytes: u64,
    /// This process's footprint (`phys_footprint` on macOS, resident set on Linux).
    pub own_bytes: u64,
    /// Memory no app can give back: wired pages on macOS, kernel memory on Linux. 0 where unknown.
    pub system_bytes: u64,
    /// Live bytes by the tape's and trainer's own count.
    pub device_live_bytes: u64,
    /// What the GPU driver says this process has allocated. 0 on the CPU.
    pub device_allocated_bytes: u64,
    /// The GPU's recommended working set. 0 where there is none.
    pub device_limit_bytes: u64,
    /// Swap in use by the whole machine.
    pub swap_used_bytes: u64,
    /// The kernel's own pressure level, where it has one.
    pub kernel_level: Option<Level>,
    /// Share of the last second in which somebody waited for memory (Linux PSI `some`), `0.0..=1.0`.
    pub stall_fraction: Option<f64>,
    /// Share of non-wired memory held by the compressor (macOS), `0.0..=1.0`.
    pub compressor_fraction: Option<f64>,
    /// Free space where swap and checkpoints go.
    pub disk_free_bytes: Option<u64>,
    /// How hot the machine is by its own word (macOS): a hot one is slow, whatever memory there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub thermal: Option<Thermal>,
    /// The user has asked the machine to save power (macOS): pieces take longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub low_power: Option<bool>,
}

/// How hot a machine says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Thermal {
    /// As it should be.
    Nominal,
    /// Fans are heard.
    Fair,
    /// The processors are slowed.
    Serious,
    /// It must cool down.
    Critical,
}

impl MemorySample {
    /// What everybody else uses: total less available, less Ebb, less the system's own.
    pub fn others_bytes(&self) -> u64 {
        self.total_bytes
            .saturating_sub(self.available_bytes)
            .saturating_sub(self.own_bytes)
            .saturating_sub(self.system_bytes)
    }
}

/// A pressure level: the kernel's, or Ebb's own with hysteresis.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, TS,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Memory is easy to come by.
    #[default]
    Normal,
    /// Others begin to feel it.
    Warning,
    /// The system suffers, or will within a second.
    Critical,
}

/// Which part of the signal is the highest, or who else spoke: the reason shown to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// `1 - available / total`.
    #[default]
    Headroom,
    /// Device allocation against its recommended working set.
    Device,
    /// The compressor's share (macOS) or the memory stall (Linux).
    Kernel,
    /// Free disk space.
    Disk,
    /// The kernel's own level, where it is above every component.
    System,
    /// No part of the signal: the user asked for it.
    User,
    /// No part of the signal: more would be no faster.
    Speed,
}
