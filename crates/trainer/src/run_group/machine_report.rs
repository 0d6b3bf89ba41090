//! What a rank of a group tells the others at the end of each step, besides its sums.

use runlog::MachineShare;
use serde::{Deserialize, Serialize};

/// What a rank reports at the end of a step.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct MachineReport {
    pub(crate) share: MachineShare,
    /// The rank has freed its weights and has memory for them again.
    pub(crate) needs_weights: bool,
    /// Decisions of its memory controller, and warnings.
    pub(crate) messages: Vec<String>,
}
