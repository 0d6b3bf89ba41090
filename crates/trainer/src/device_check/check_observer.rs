//! What a device check reports while it runs.

use super::compare_with_cpu::Finding;
use std::ops::ControlFlow;

/// Follows a device check.
pub trait CheckObserver {
    /// `done` of about `total` comparisons are done. A break ends the check.
    fn progress(&mut self, _done: usize, _total: usize) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A comparison was made.
    fn finding(&mut self, _finding: &Finding) {}
}

impl CheckObserver for () {}
