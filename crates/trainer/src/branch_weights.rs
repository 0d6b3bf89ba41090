//! The weights that a new run takes from the run that it branches from.

use crate::checkpoint::Loaded;

/// The weights that a branch starts from.
pub struct BranchWeights {
    /// The checkpoint.
    pub loaded: Loaded,
    /// Its run and step: "2026-11-20-1402-groceries, step 400".
    pub from: String,
}
