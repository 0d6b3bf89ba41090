//! Values of a config that depend on the machine's memory.

use serde::{Deserialize, Serialize};

/// Values for machines with at least this much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SettingsForMemory {
    /// Physical memory, in bytes. A file may also say "8GB".
    pub at_least: u64,
    /// Samples per step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_batch: Option<u32>,
    /// Micro-batch to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_micro_batch: Option<u32>,
}
