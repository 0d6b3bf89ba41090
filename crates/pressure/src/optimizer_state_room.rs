//! Decides whether a process may have the whole optimizer state. If one of a group may not, the
//! group divides the state. The check of a plan and the start of a group both decide here, so that
//! a plan that fits only in parts is trained in parts.

use serde::Serialize;

/// The part of its memory limit that weights, gradients and moments of a process may take. The rest
/// is for activations and other apps.
const STATE_FRACTION: f64 = 0.75;

/// What a process needs if it has the whole optimizer state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct WholeStateNeed {
    /// Bytes of weights, gradients and moments, and of everything else on the heap between
    /// micro-batches.
    pub state_bytes: u64,
    /// Footprint of the process during the smallest micro-batch, in bytes; 0 if it was not
    /// estimated.
    pub peak_bytes: u64,
}

/// Memory that a process has too little of for the whole optimizer state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateShortage {
    /// The state itself takes more than a process may use for it.
    State {
        /// Bytes that it takes.
        needed_bytes: u64,
        /// Bytes that it may take.
        allowed_bytes: u64,
    },
    /// Nothing is left for the smallest micro-batch.
    MicroBatch {
        /// Footprint with this micro-batch, in bytes.
        needed_bytes: u64,
        /// Largest footprint, in bytes.
        allowed_bytes: u64,
    },
}

impl WholeStateNeed {
    /// What is missing for the whole state in a process that may use `limit_bytes`; `None` if it
    /// fits, or if the limit is 0, which means unknown.
    pub fn shortage(&self, limit_bytes: u64) -> Option<StateShortage> {
        if limit_bytes == 0 {
            return None;
        }
        let state_limit_bytes = (STATE_FRACTION * limit_bytes as f64) as u64;
        if self.state_bytes > state_limit_bytes {
            return Some(StateShortage::State {
                needed_bytes: self.state_bytes,
                allowed_bytes: state_limit_bytes,
            });
        }
        (self.peak_bytes > limit_bytes).then_some(StateShortage::MicroBatch {
            needed_bytes: self.peak_bytes,
            allowed_bytes: limit_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::GB;

    #[test]
    fn a_quarter_of_the_limit_is_for_activations() {
        let need = WholeStateNeed {
            state_bytes: 9 * GB,
            peak_bytes: 0,
        };
        assert_eq!(need.shortage(12 * GB), None);
        assert_eq!(need.shortage(0), None, "an unknown limit decides nothing");
        let short = StateShortage::State {
            needed_bytes: 9 * GB,
            allowed_bytes: 6 * GB,
        };
        assert_eq!(need.shortage(8 * GB), Some(short));
    }

    #[test]
    fn a_state_that_leaves_no_room_for_a_micro_batch_is_too_large() {
        let need = WholeStateNeed {
            state_bytes: 4 * GB,
            peak_bytes: 9 * GB,
        };
        assert_eq!(need.shortage(9 * GB), None);
        let short = StateShortage::MicroBatch {
            needed_bytes: 9 * GB,
            allowed_bytes: 8 * GB,
        };
        assert_eq!(need.shortage(8 * GB), Some(short));
    }
}
