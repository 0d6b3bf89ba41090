//! The cancel flag, and how a long operation checks it between two of its samples, so that a
//! cancelled micro-batch ends within one sample's work.

use crate::error::{Result, TapeError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Raised by another thread to stop the micro-batch at the next operation.
pub type Cancel = Arc<AtomicBool>;

/// Watches the flag during one operation. Once one thread has seen it raised, all threads skip the
/// rest of their work, and [`CancelWatch::finish`] fails even if the flag was lowered meanwhile.
pub(crate) struct CancelWatch<'a> {
    cancel: &'a Cancel,
    skipped: AtomicBool,
}

impl<'a> CancelWatch<'a> {
    pub(crate) fn new(cancel: &'a Cancel) -> Self {
        CancelWatch {
            cancel,
            skipped: AtomicBool::new(false),
        }
    }

    /// False once the flag was raised: the caller skips its next part.
    pub(crate) fn should_continue(&self) -> bool {
        let raised = self.cancel.load(Ordering::Relaxed);
        if raised {
            self.skipped.store(true, Ordering::Relaxed);
        }
        !raised && !self.skipped.load(Ordering::Relaxed)
    }

    /// Fails with [`TapeError::Cancelled`] if any part was skipped.
    pub(crate) fn finish(self) -> Result<()> {
        if self.skipped.into_inner() {
            return Err(TapeError::Cancelled);
        }
        Ok(())
    }
}
