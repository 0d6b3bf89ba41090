//! The best evaluation so far while its checkpoint waits in memory, because saving it at once would
//! take too much of the training time.

use crate::checkpoint::Content;
use crate::error::Result;
use runlog::RunFolder;

/// Saves the results of an evaluation into the folder of its run.
pub type SaveResults = Box<dyn Fn(&RunFolder) -> Result<()>>;

/// A copy of the checkpoint, and the results that belong to it.
pub struct PostponedBest {
    pub content: Content,
    pub save_results: SaveResults,
}

impl PostponedBest {
    /// The step of the evaluation.
    pub fn step(&self) -> u64 {
        self.content.state().step
    }

    /// Score and step.
    pub fn best(&self) -> Option<(f64, u64)> {
        self.content.state().best
    }
}
