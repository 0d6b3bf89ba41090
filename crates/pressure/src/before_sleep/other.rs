//! Systems that do not announce that they will sleep. Same interface as `macos.rs`.

use super::{BeforeSleep, SleepWatch};

/// Never calls `before_sleep`.
pub(super) fn open(_before_sleep: BeforeSleep) -> Option<Box<dyn SleepWatch>> {
    None
}
