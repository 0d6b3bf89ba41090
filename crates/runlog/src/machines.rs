//! What the events of a run that several machines train say of them.

use crate::amounts::counted;
use pressure::Level;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// A process that trains the run together with others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
pub struct GroupMember {
    /// Number of the process, from 0. Rank 0 keeps the run folder.
    pub rank: u32,
    /// Name of its machine.
    pub host: String,
    /// `cpu`, `metal` or `cuda`, with the name of the chip.
    pub device: String,
    /// Threads of the CPU kernels.
    pub threads: u32,
    /// Physical memory of its machine, in bytes.
    pub total_bytes: u64,
}

/// What one rank did since the previous event of this kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct MachineShare {
    /// The rank.
    pub rank: u32,
    /// Samples that it processed.
    pub samples: u64,
    /// Milliseconds in which it processed them.
    #[serde(deserialize_with = "crate::json_floats::or_null")]
    pub busy_ms: f64,
    /// Milliseconds in which it waited for other ranks or for memory, the exchange included.
    #[serde(deserialize_with = "crate::json_floats::or_null")]
    pub wait_ms: f64,
    /// Milliseconds in which it added its gradients up with those of the others. Missing in events
    /// of early versions.
    #[serde(default, deserialize_with = "crate::json_floats::or_null")]
    pub exchange_ms: f64,
    /// Samples of its micro-batch; 0 while it does not work.
    pub micro_batch: u32,
    /// Footprint of its process, in bytes.
    pub own_bytes: u64,
    /// Highest footprint of its process since the previous event, in bytes. Missing in events of
    /// early versions.
    #[serde(default)]
    pub peak_bytes: u64,
    /// What the system and other apps use on its machine, in bytes. Missing in events of early
    /// versions.
    #[serde(default)]
    pub others_bytes: u64,
    /// The footprint that it allows itself, in bytes.
    pub budget_bytes: u64,
    /// Pressure level of its machine.
    pub level: Level,
    /// It has freed its weights because memory is short, and processes nothing.
    #[serde(default)]
    pub is_suspended: bool,
}

impl MachineShare {
    /// The highest known footprint of its process since the previous event, in bytes.
    pub fn highest_bytes(&self) -> u64 {
        self.peak_bytes.max(self.own_bytes)
    }

    /// The fraction of the time in which the rank worked; `None` if no time has passed.
    pub fn utilization(&self) -> Option<f64> {
        self.fraction(self.busy_ms)
    }

    /// The fraction of the time in which it waited for other ranks or for memory.
    pub fn waiting(&self) -> Option<f64> {
        self.fraction(self.wait_ms - self.exchange_ms)
    }

    /// The fraction of the time in which it exchanged gradients.
    pub fn exchange(&self) -> Option<f64> {
        self.fraction(self.exchange_ms)
    }

    fn fraction(&self, part_ms: f64) -> Option<f64> {
        let all_ms = self.busy_ms + self.wait_ms;
        (all_ms > 0.0).then(|| (part_ms / all_ms).clamp(0.0, 1.0))
    }
}

/// "Training on 2 machines: studio (rank 0), air (rank 1)", or "Training in 2 processes on studio".
pub fn describe_group(members: &[GroupMember]) -> String {
    let mut hosts: Vec<&str> = members.iter().map(|member| member.host.as_str()).collect();
    hosts.dedup();
    if let [host] = hosts.as_slice() {
        let processes = counted(members.len() as u64, "process", "processes");
        return format!("Training in {processes} on {host}");
    }
    let names = members.iter();
    let names = names.map(|member| format!("{} (rank {})", member.host, member.rank));
    hosts.sort_unstable();
    hosts.dedup();
    format!(
        "Training on {}: {}",
        counted(hosts.len() as u64, "machine", "machines"),
        names.collect::<Vec<_>>().join(", ")
    )
}

/// A member of a group in tests.
#[cfg(test)]
pub(crate) fn member(rank: u32, host: &str) -> GroupMember {
    GroupMember {
        rank,
        host: host.to_owned(),
        ..GroupMember::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_described_by_its_machines() {
        let pair = [member(0, "studio"), member(1, "air")];
        assert_eq!(
            describe_group(&pair),
            "Training on 2 machines: studio (rank 0), air (rank 1)"
        );
        let same = [member(0, "studio"), member(1, "studio")];
        assert_eq!(describe_group(&same), "Training in 2 processes on studio");
    }
}
