//! A long operation's look at the cancel flag, between two of its samples: a piece ends within a sample's work however
//! large it is. Knows nothing of who raises the flag and why.

use crate::error::{Result, TapeError};
use crate::tape::Cancel;
use std::sync::atomic::{AtomicBool, Ordering};

/// Watches the flag for one operation. Once it was seen raised the rest is left out on every thread, and [`Watch::whole`]
/// refuses the result, even if the flag was lowered meanwhile.
pub(crate) struct Watch<'a> {
    cancel: &'a Cancel,
    left_out: AtomicBool,
}

impl<'a> Watch<'a> {
    pub(crate) fn of(cancel: &'a Cancel) -> Self {
        Watch {
            cancel,
            left_out: AtomicBool::new(false),
        }
    }

    /// Whether the next part is still wanted.
    pub(crate) fn goes_on(&self) -> bool {
        let raised = self.cancel.load(Ordering::Relaxed);
        if raised {
            self.left_out.store(true, Ordering::Relaxed);
        }
        !raised && !self.left_out.load(Ordering::Relaxed)
    }

    /// [`TapeError::Cancelled`] when any part was left out.
    pub(crate) fn whole(self) -> Result<()> {
        match self.left_out.into_inner() {
            true => Err(TapeError::Cancelled),
            false => Ok(()),
        }
    }
}
