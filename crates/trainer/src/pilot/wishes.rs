//! What a user may change of the policy while a training flies. Knows no reason to refuse: what is asked was checked before.

use super::Pilot;

impl Pilot {
    /// Another memory cap.
    pub fn set_memory_cap(&mut self, bytes: Option<u64>) {
        self.policy.memory_cap_bytes = bytes;
    }

    /// Another budget line, as the share of all memory that everybody together may fill.
    pub fn set_politeness(&mut self, fraction: f64) {
        self.policy.max_system_fraction = fraction;
    }
}
